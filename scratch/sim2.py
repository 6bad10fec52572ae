import sys
exec(open('/tmp/sim.py').read().split("rng=np.random.default_rng(5)")[0])
rng=np.random.default_rng(6)
worst=[]
for ds in every:
    if ds.n.shape[0]<2: continue
    t=true_typ(ds.tables[0]); rec=[]
    for _ in range(A):
        rows,_,_=ds.draw(rng); e=M['typ'].estimate(rows,0,Bootstrap()); rec.append((e.low,e.high,e.value))
    lo,hi,v=np.array(rec).T
    worst.append((100*np.mean((lo<=t+1e-9)&(t<=hi+1e-9)),ds.name,round(t,3),round(v.mean(),3),'missed high',round(100*np.mean(hi<t-1e-9),1),'low',round(100*np.mean(lo>t+1e-9),1),'width',round((hi-lo).mean(),3)))
for w in sorted(worst)[:14]: print(*w)
