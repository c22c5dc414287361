package assess

import (
	"slices"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/parallel"
	"github.com/dovetail-k8s/dovetail/internal/inspect"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Baseline is a cluster with where it goes by itself, which all edits are compared with. It may be used by several goroutines.
type Baseline struct {
	view     *inspect.View
	settings Settings
	prices   *priceList
	// before returns where the cluster goes, computed when it is first needed.
	before func() Prospect
	// farther is before with the bound for feature gates.
	farther func() Prospect
	now     Size
}

// NewBaseline prepares a comparison, which is for a person who waits: see editSteps.
func NewBaseline(view *inspect.View, settings Settings) *Baseline {
	prices := newPriceList(view)
	settings.Steps = editSteps
	out := &Baseline{view: view, settings: settings, prices: prices}
	out.before = sync.OnceValue(func() Prospect { return out.of(view).prospect() })
	out.farther = sync.OnceValue(func() Prospect { return out.farTo(view).prospect() })
	out.now.HourlyCost, out.now.Nodes = cost(view.Snapshot, prices)
	return out
}

func (b *Baseline) of(view *inspect.View) *assessment {
	return &assessment{view: view, settings: b.settings, prices: b.prices}
}

// farTo is of with the bound for feature gates.
func (b *Baseline) farTo(view *inspect.View) *assessment {
	out := b.of(view)
	out.settings.Steps = gateSteps
	return out
}

// Compare computes what the edit of a NodePool does.
//
// Cost: a plan for the pending pods and those of drifted nodes, one for all pods, and a pass of consolidation. The first comparison of a
// Baseline takes the same again for the cluster without the edit, at the same time. An edit that no plan depends on takes no plan.
func (b *Baseline) Compare(pool *karpv1.NodePool) (*Comparison, error) {
	edited, err := b.edited(b.view.WithNodePool(pool))
	if err != nil {
		return nil, err
	}
	out := compare(b.before, b.of(edited), samePlans(b.view, edited, pool.Name))
	out.Now = b.now
	pools := map[string]*karpv1.NodePool{pool.Name: pool}
	out.drift(b.view, edited, pools)
	out.budget(edited, pools)
	return out, nil
}

// CompareNodeClass computes what the edit of a node class does, as Compare.
func (b *Baseline) CompareNodeClass(class *awsv1.EC2NodeClass) (*Comparison, error) {
	edited, err := b.edited(b.view.WithNodeClass(class))
	if err != nil {
		return nil, err
	}
	alike := apiequality.Semantic.DeepEqual(b.view.NodeClasses[class.Name].Spec, edited.NodeClasses[class.Name].Spec) &&
		slices.EqualFunc(b.view.NodeClaims, edited.NodeClaims, sameConditions)
	out := compare(b.before, b.of(edited), alike)
	out.Now = b.now
	pools := map[string]*karpv1.NodePool{}
	for _, pool := range edited.NodePools {
		if ref := pool.Spec.Template.Spec.NodeClassRef; awsv1.IsEC2NodeClass(ref) && ref.Name == class.Name {
			pools[pool.Name] = pool
		}
	}
	out.drift(b.view, edited, pools)
	out.budget(edited, pools)
	return out, nil
}

// CompareReplicas computes what another number of replicas of a Deployment does, as Compare. The error is a
// manifest.UnknownDeploymentError for one that the cluster does not have.
func (b *Baseline) CompareReplicas(of types.NamespacedName, replicas int) (*Comparison, error) {
	edited, err := b.edited(b.view.WithReplicas(of, replicas))
	if err != nil {
		return nil, err
	}
	changed := edited.Changes[0]
	out := compare(b.before, b.of(edited), changed.Was == changed.Now)
	out.Now = b.now
	return out, nil
}

// edited is the View of a state.
func (b *Baseline) edited(state *manifest.ClusterState, err error) (*inspect.View, error) {
	if err != nil {
		return nil, err
	}
	return b.view.With(state)
}

// compare computes both sides. They are alike if the edit changes nothing that a Prospect depends on.
func compare(before func() Prospect, edited *assessment, alike bool) *Comparison {
	out := &Comparison{Notes: append([]string{}, edited.view.Notes...), Drift: []EditDrift{}}
	if alike {
		out.Before = before()
		out.After = out.Before
		out.After.Stuck, out.After.Kept = slices.Clone(out.Before.Stuck), slices.Clone(out.Before.Kept)
	} else {
		computing := parallel.Begin(before)
		out.After = edited.prospect()
		out.Before = computing.Wait()
	}
	out.After.markNew(&out.Before)
	return out
}
