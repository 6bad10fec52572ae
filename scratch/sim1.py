import sys
exec(open('/tmp/sim.py').read().split("rng=np.random.default_rng(5)")[0])
names=sys.argv[2].split(';'); keys=sys.argv[3].split(',')
rng=np.random.default_rng(5)
for ds in every:
    if not any(x in ds.name for x in names): continue
    for k in keys:
        t=true_typ(ds.tables[1])-true_typ(ds.tables[0]) if k=='typ' else ds.truth(M[k])
        rec=[]
        for _ in range(A):
            rows,_,_=ds.draw(rng); e=M[k].difference(rows,0,1,Bootstrap()); rec.append((e.low,e.high,e.value))
        lo,hi,v=np.array(rec).T
        print(ds.name,k,'true',round(t,4),'mean',round(v.mean(),4),'below',round(100*np.mean(hi<t-1e-9),1),'above',round(100*np.mean(lo>t+1e-9),1),'yes',round(100*np.mean(hi<0),1), 'no',round(100*np.mean(lo>0),1))
