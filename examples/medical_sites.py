"""A medical CLIP on images of several hospitals: does the answer depend on the site?

    python examples/medical_sites.py IMAGES LABELS.csv --model FOLDER_OF_A_MEDICAL_CLIP

The file has the columns path, finding and site. A model rarely knows a hospital by its name, but it
sees what differs between them: name that, for example how the image was taken.
"""

import argparse

from fair_tta import FairTPTClassifier
from fair_tta.datasets import read_folder

parser = argparse.ArgumentParser(description="Findings by site.")
parser.add_argument("images", help="folder of images")
parser.add_argument("labels", help="CSV file with the columns path, finding and site")
parser.add_argument("--model", required=True, help="folder or hub id of a medical CLIP")
options = parser.parse_args()

FINDINGS = {"effusion": "pleural effusion", "none": "no finding"}
SITES = {"clinic": "portable scanner", "hospital": "fixed scanner"}
TEMPLATE = "a chest X-ray with {target}, taken with a {sensitive}."

records = list(
    read_folder(
        options.images,
        options.labels,
        target_column="finding",
        sensitive_columns=["site"],
    )
)
clf = FairTPTClassifier(options.model, FINDINGS, {"site": SITES}, TEMPLATE)
images, labels = [r.path for r in records], [r.target for r in records]
mitigation = clf.mitigate(
    images, labels, {"site": [r.sensitive["site"] for r in records]}
)
print(mitigation.audit)
print(mitigation.reason)
