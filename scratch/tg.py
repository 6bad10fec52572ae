import sys; sys.path.insert(0,'/work/shared/reference')
import numpy as np, time
from fair_tta.metrics._columns import Columns
from fair_tta.metrics import _definitions as d, Bootstrap
from fair_tta import audit, compare
rng=np.random.default_rng(1)
G,C,N=10,2,10000
t=rng.integers(0,C,N); g=rng.integers(0,G,N)
acc=rng.uniform(.5,.95,(G,C))
a0=np.where(rng.random(N)<acc[g,t],t,1-t)
ans=[a0]+[np.where(rng.random(N)<.1,t,a0) for _ in range(9)]
c=Columns(tuple(range(C)),{"a":tuple(range(G))},t,g,tuple(ans))
from fair_tta.metrics._noise import noise_of
from fair_tta.metrics._typical_gap import TypicalGap
print(d.TYPICAL_GAP.estimate(c,0,Bootstrap()), TypicalGap(noise_of(c,(0,)),0).value)
print(d.TYPICAL_GAP.difference(c,0,1,Bootstrap()))
s=time.process_time()
names=[str(x) for x in range(C)]
auds=[audit(t,a,g,name=str(i)) for i,a in enumerate(ans)]
s1=time.process_time(); print('audits',s1-s)
both=compare(auds); print('compare',time.process_time()-s1)
dd=both.to_dict()['comparisons'][0]
print({k:(round(v['value'],3),round(v['low'],3),round(v['high'],3)) for k,v in dd['differences'].items() if v['low'] is not None})
print({k:(round(v['value'],3),round(v['low'],3),round(v['high'],3)) for k,v in dd['corrected'].items() if v['low'] is not None})
