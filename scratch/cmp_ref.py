import sys, time, numpy as np
sys.path.insert(0,'/work/shared/reference')
import paired_statistics as ref
from fair_tta.metrics._columns import Columns
from fair_tta.metrics import _noise, _extremes as ex
from fair_tta.metrics._typical_gap import TypicalGapChange, TypicalGap
D=int(sys.argv[1]) if len(sys.argv)>1 else 1000
_noise.DRAWS=D; ref.DRAWS=D
rng=np.random.default_rng(1)
def case(G,C,n,runs=2):
    N=G*C*n
    group=np.repeat(np.arange(G),C*n); truth=np.tile(np.repeat(np.arange(C),n),G)
    acc=rng.uniform(.5,.95,(G,C))
    ans=[]
    for r in range(runs):
        right=rng.random(N)<acc[group,truth]
        wrong=(truth+rng.integers(1,C,N))%C
        ans.append(np.where(right,truth,wrong))
        if r: ans[-1]=np.where(rng.random(N)<.7,ans[0],ans[-1])
    return truth,group,ans
for G,C,n,runs in [(2,2,100,2),(3,3,60,3),(7,2,140,2),(2,5,100,2)]:
    truth,group,ans=case(G,C,n,runs)
    cols=Columns(tuple(range(C)),{"a":tuple(range(G))},truth,group,tuple(ans))
    t=time.process_time(); nz=_noise.noise_of(cols,tuple(range(runs))); t1=time.process_time()-t
    t=time.process_time(); m=ref.moments(truth,group,ans,G,C,draws=D); t2=time.process_time()-t
    print(G,C,n,'cpu',round(t1,3),round(t2,3))
    print('  right sd ratio', np.round((nz.draws[1].right.std(0)/ref.hits_of(m.z)[:,1].std(0)).ravel()[:4],3))
    for name,kind,sign in [("wga",ex.lowest,-1),("bias",ex.shortfall,1),("eod",ex.odds,1),("eopp",ex.opportunity,1),("dp",ex.parity,1),("wga_s",ex.lowest_of_values,-1)]:
        mine=ex.ExtremeChange(kind,nz,0,1); lo,hi=mine.ends(.025)
        if sign<0: lo,hi=-hi,-lo
        r=ref.Change(m,name,1); rl,rh=r.ends()
        s=ex.run_ends(kind,nz,0,.025) if sign>0 else None
        rs=ref.single_ends(m,name,0) if sign>0 and name!='bias' else None
        print('  ',name,np.round([sign*mine.value,lo,hi],4),np.round([r.value,rl,rh],4), s and np.round(s,4), rs and np.round(rs,4))
    ty=TypicalGapChange(nz,0,1); rt=ref.Typical(m,1)
    print('   typ',np.round([ty.before.value,ty.after.value,*ty.ends(.025)],4),np.round([rt.before,rt.after,*rt.ends()],4))
