package main

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/aws/offlineregion"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog/offline"
	"github.com/dovetail-k8s/dovetail/internal/engine/pass"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/planner"
)

// world is the cluster. Objects are never changed in place: the recorder still reads them.
type world struct {
	now       time.Time
	pools     []cluster.Pool
	budgets   []*policyv1.PodDisruptionBudget
	workloads []workload
	pods      []*corev1.Pod
	nodes     []*corev1.Node
	claims    []*karpv1.NodeClaim
	memory    pass.Memory

	// lives is what happens to the instance of a claim, by its name.
	lives map[string]*life
	// commands are in progress.
	commands []*command
	count    int
	drifted  bool
}

// life is when the node of a claim joins, which decision launched it, and when a pod came or went last.
type life struct {
	decision string
	joins    time.Time
	changed  time.Time
	offering catalog.Offering
	typ      *catalog.InstanceType
}

func newWorld(now time.Time) (*world, error) {
	w := &world{now: now, workloads: workloads(), lives: map[string]*life{}}
	const region = "us-east-1"
	data, err := offline.Load(region)
	if err != nil {
		return nil, err
	}
	built, err := offlineregion.New(data, instancetype.Settings{Region: region, MemoryOverhead: 0.075, Expressions: true})
	if err != nil {
		return nil, err
	}
	all, err := built.Types(nil)
	if err != nil {
		return nil, err
	}
	var offered []*catalog.InstanceType
	for _, t := range all {
		family, size, _ := strings.Cut(t.Name, ".")
		if slices.Contains([]string{"c7i", "m7i", "r7i"}, family) && slices.Contains([]string{"large", "xlarge", "2xlarge"}, size) {
			offered = append(offered, within(t, "us-east-1a", "us-east-1b", "us-east-1c"))
		}
	}
	w.addPool("web", karpv1.CapacityTypeOnDemand, 3*time.Minute, offered)
	w.addPool("batch", karpv1.CapacityTypeSpot, time.Minute, offered)
	w.budgets = []*policyv1.PodDisruptionBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "metrics", UID: "pdb-metrics", ResourceVersion: "1"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "metrics"}},
		},
	}}
	return w, nil
}

// within is a type with its offerings in some zones only.
func within(t *catalog.InstanceType, zones ...string) *catalog.InstanceType {
	out := *t
	out.Offerings = slices.DeleteFunc(slices.Clone(t.Offerings), func(o catalog.Offering) bool { return !slices.Contains(zones, o.Zone) })
	return &out
}

func (w *world) addPool(name, capacityType string, after time.Duration, types []*catalog.InstanceType) {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: typesUID("pool", name), ResourceVersion: "1", Generation: 1,
		CreationTimestamp: metav1.NewTime(start().AddDate(0, -3, 0)),
	}}
	p.Spec.Template.Labels = map[string]string{"shop.example.com/tier": name}
	p.Spec.Template.Spec.NodeClassRef = karpv1.NodeClassReference{Group: awsv1.Group, Kind: awsv1.Kind, Name: "default"}
	p.Spec.Template.Spec.Requirements = []karpv1.Requirement{{
		Key: karpv1.LabelCapacityType, Operator: corev1.NodeSelectorOpIn, Values: []string{capacityType},
	}}
	if name == "batch" {
		p.Spec.Template.Spec.Taints = []corev1.Taint{{Key: "shop.example.com/batch", Effect: corev1.TaintEffectNoSchedule}}
	}
	p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationWhenEmptyOrUnderutilized
	p.Spec.Disruption.ConsolidateAfter = karpv1.NillableDuration{Duration: &after}
	p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "20%"}}
	for _, typ := range p.ConditionTypes().Dependents {
		condition.SetTrue(p, typ, w.now)
	}
	w.pools = append(w.pools, cluster.Pool{
		NodePool: p, NodeClassLabel: [2]string{awsv1.LabelNodeClass, "default"}, InstanceTypes: types,
	})
}

func typesUID(parts ...string) types.UID { return types.UID(strings.Join(parts, "-")) }

func (w *world) version() string {
	w.count++
	return fmt.Sprint(w.count)
}

func (w *world) newID() string {
	w.count++
	return "d-" + suffix(w.count)
}

// suffix is a short name that looks like those of Kubernetes, another for each number.
func suffix(n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	v, out := uint32(n)*2654435761, make([]byte, 6)
	for i := range out {
		out[i] = letters[v%uint32(len(letters))]
		v /= uint32(len(letters))
	}
	return string(out)
}

func fnvOf(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum32()
}

func (w *world) objects() cluster.Objects {
	var namespaces []*corev1.Namespace
	for _, name := range []string{"data", "platform", "shop"} {
		namespaces = append(namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: typesUID("ns", name), ResourceVersion: "1",
		}})
	}
	return cluster.Objects{
		NodeClaims: slices.Clone(w.claims), Nodes: slices.Clone(w.nodes), Pods: slices.Clone(w.pods), Pools: w.pools, PDBs: w.budgets,
		Namespaces: namespaces,
	}
}

func (w *world) facts() cluster.Facts {
	f := cluster.Facts{
		Now: w.now, Labels: planner.Labels(), NominationWindow: 20 * time.Second, MarkedForDeletion: map[types.UID]bool{},
		Disrupting: map[types.UID][]string{}, Settings: snapshot.Settings{PreferencePolicy: snapshot.PreferencesRespect},
	}
	for _, c := range w.commands {
		for _, name := range c.removes {
			f.Disrupting[typesUID("claim", name)] = c.launches
		}
	}
	return f
}
