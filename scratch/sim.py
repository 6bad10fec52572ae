import sys; sys.path[:0]=['/work/shared/reference','/tmp/wt/verdict/benchmarks']
import numpy as np, time, warnings
warnings.simplefilter('ignore')
import coverage as cov, designs as ref
from fair_tta.metrics import _definitions as d, Bootstrap
A=int(sys.argv[1])
every=list(cov.designs())
for name,n,right,lost,won in ref.DESIGNS:
    n=np.array(n); parts=[np.broadcast_to(np.array(x,float),n.shape) for x in(right,lost,won)]
    every.append(cov.Design(name,n,*parts))
M={'WGA':d.WORST_GROUP_ACCURACY,'bias':d.BIAS,'EOD':d.EQUALIZED_ODDS,'EOpp':d.EQUAL_OPPORTUNITY,'DP':d.DEMOGRAPHIC_PARITY,'WGA_s':d.WORST_GROUP_ACCURACY_S,'bias_s':d.BIAS_S,'typ':d.TYPICAL_GAP}
def true_typ(table):
    r=d.true_positive(table); n=table.sum(-1); v=[]
    return float(np.sqrt(np.mean([2*r[n[:,c]>0,c].var(ddof=1) for c in range(n.shape[1]) if (n[:,c]>0).sum()>1])))
rng=np.random.default_rng(5)
tot={k:[] for k in M}; powers={k:[] for k in M}; false={k:[] for k in M}
for ds in every:
    out=[]
    truths={}
    for k,m in M.items():
        if k=='typ':
            if ds.n.shape[0]<2: continue
            truths[k]=true_typ(ds.tables[1])-true_typ(ds.tables[0])
        else:
            t=ds.truth(m)
            if not np.isnan(t): truths[k]=t
    rec={k:[] for k in truths}
    for _ in range(A):
        rows,_,_=ds.draw(rng)
        for k in truths:
            e=M[k].difference(rows,0,1,Bootstrap()); rec[k].append((e.low,e.high))
    line=[]
    for k,t in truths.items():
        lo,hi=np.array(rec[k]).T; c=np.mean((lo-1e-9<=t)&(t<=hi+1e-9))
        good=M[k].better*t
        yes=np.mean((lo>0) if M[k].better>0 else (hi<0)); no=np.mean((hi<0) if M[k].better>0 else (lo>0))
        if good>1e-9: powers[k].append(yes); false[k].append(no)
        elif good<-1e-9: false[k].append(yes)
        else: false[k]+= [yes,no]
        tot[k].append(c)
        line.append(f"{k} {100*c:.0f}{'!' if c<.94 else ''}/{100*yes:.0f}")
    print(ds.name,'|',' '.join(line),flush=True)
for k in M: print(k,'lowest',round(100*min(tot[k]),1),'power',round(100*np.mean(powers[k]),1),'false mean',round(100*np.mean(false[k]),2),'max',round(100*max(false[k]),1))
