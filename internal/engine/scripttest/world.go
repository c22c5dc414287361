package scripttest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/enginetest"
	"github.com/dovetail-k8s/dovetail/internal/engine/repair"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
)

// world is the cluster as the script has described it so far.
type world struct {
	snap  *snapshot.Snapshot
	zones []string
	types []*catalog.InstanceType
	// customTypes is true if the script defines its own types.
	customTypes bool
	launched    int
	pods        int
	// group is the name that pods are printed with.
	group map[types.UID]string
	// nominated are pod names by the node that they are nominated to.
	nominated map[string][]string
	passes    *passes
}

var one = *resource.NewQuantity(1, resource.DecimalSI)

func newWorld() *world {
	w := &world{
		snap: enginetest.World(nil), zones: []string{"a", "b", "c"}, group: map[types.UID]string{}, nominated: map[string][]string{},
	}
	w.passes = newPasses(w.snap.Now)
	w.snap.Settings = snapshot.Settings{PreferencePolicy: snapshot.PreferencesRespect, MinValuesPolicy: snapshot.MinValuesStrict}
	w.snap.Volumes = snapshot.Volumes{
		Claims: map[types.NamespacedName]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		StorageClasses: map[string]*storagev1.StorageClass{},
	}
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		"wait": storagev1.VolumeBindingWaitForFirstConsumer,
		"now":  storagev1.VolumeBindingImmediate,
	} {
		w.snap.Volumes.StorageClasses[name] = &storagev1.StorageClass{
			ObjectMeta:        metav1.ObjectMeta{Name: name},
			Provisioner:       "ebs.csi.aws.com",
			VolumeBindingMode: &mode,
		}
	}
	return w
}

// do runs one line.
func (w *world) do(l line) error {
	commands := map[string]func(line) error{
		"zones": w.doZones, "type": w.doType, "pool": w.doPool, "daemon": w.doDaemon, "node": w.doNode,
		"volume": w.doVolume, "pod": w.doPod, "set": w.doSet, "unavailable": w.doUnavailable, "delete": w.doDelete,
		"at": w.doAt, "restart": w.doRestart, "limit": w.doLimit, "pdb": w.doPDB,
		"done": w.doOutcome, "failed": w.doOutcome, "refused": w.doOutcome, "changed": w.doOutcome,
	}
	do := commands[l.command]
	if do == nil {
		return fmt.Errorf(
			"%q is not a command; expected plan, pass or one of %s",
			l.command,
			strings.Join(slices.Sorted(maps.Keys(commands)), ", "),
		)
	}
	return do(l)
}

func (w *world) doZones(l line) error {
	if len(l.words) == 0 || w.types != nil {
		return errors.New("zones: expected names of zones, before types and pools")
	}
	w.zones = l.words
	return nil
}

func (w *world) doSet(l line) error {
	return l.take(arguments{
		"preferences": func(_, v string) error {
			w.snap.Settings.PreferencePolicy = map[string]snapshot.PreferencePolicy{
				"ignore": snapshot.PreferencesIgnore, "priced": snapshot.PreferencesPriced,
			}[v]
			return oneOf(v, "respect", "ignore", "priced")
		},
		"preference-cost": func(_, v string) (err error) {
			w.snap.Settings.PreferenceCost, err = strconv.ParseFloat(v, 64)
			return err
		},
		"-reboots":      func(_, _ string) error { w.passes.settings.Reboots = true; return nil },
		"-spot-to-spot": func(_, _ string) error { w.passes.settings.Consolidation.SpotToSpot = true; return nil },
		"-terminate-first": func(_, _ string) error {
			w.passes.settings.TerminateFirstDrift, w.passes.settings.TerminateFirstRepair = true, true
			return nil
		},
		"minvalues": func(_, v string) error {
			w.snap.Settings.MinValuesPolicy = map[string]snapshot.MinValuesPolicy{"besteffort": snapshot.MinValuesBestEffort}[v]
			return oneOf(v, "strict", "besteffort")
		},
	})
}

func (w *world) doType(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	if !w.customTypes {
		w.customTypes, w.types = true, nil
	}
	has := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(110, resource.DecimalSI)}
	onDemand, spot := -1.0, -1.0
	zones, labels := w.zones, map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}
	var spotZones []string
	args := amounts(has, "cpu", "mem", "pods", "gpu", "disk")
	args["price"] = func(_, v string) (err error) { onDemand, err = price(v); return err }
	args["spot"] = func(_, v string) (err error) { spot, err = price(v); return err }
	args["zones"] = func(_, v string) error { zones = strings.Split(v, ","); return nil }
	args["spot-zones"] = func(_, v string) error { spotZones = strings.Split(v, ","); return nil }
	args["arch"] = func(_, v string) error { labels[corev1.LabelArchStable] = v; return nil }
	args["label:"] = func(key, v string) error { labels[label(key)] = v; return nil }
	if err := l.take(args); err != nil {
		return err
	}
	if onDemand < 0 {
		return errors.New("type: expected price=... in $/h")
	}
	it := w.newType(typeSpec{name: name, onDemand: onDemand, spot: spot, zones: zones, capacity: has, labels: labels})
	it.Offerings = slices.DeleteFunc(it.Offerings, func(o catalog.Offering) bool {
		return o.CapacityType == karpv1.CapacityTypeSpot && spotZones != nil && !slices.Contains(spotZones, o.Zone)
	})
	w.types = append(w.types, it)
	return nil
}

// typeSpec describes an instance type of a script. Prices are in $/h; a negative spot price is a third of the on-demand price.
type typeSpec struct {
	name           string
	onDemand, spot float64
	zones          []string
	capacity       corev1.ResourceList
	labels         map[string]string
}

// newType is offered in zones; spot costs a third by default.
func (w *world) newType(s typeSpec) *catalog.InstanceType {
	if s.spot < 0 {
		s.spot = s.onDemand / 3
	}
	it := &catalog.InstanceType{Name: s.name, Capacity: s.capacity, Allocatable: s.capacity}
	s.labels[corev1.LabelInstanceTypeStable] = s.name
	it.Requirements = requirement.FromExactLabels(s.labels)
	var offerings []catalog.Offering
	for _, z := range s.zones {
		offerings = append(
			offerings,
			enginetest.Offering(z, karpv1.CapacityTypeOnDemand, s.onDemand),
			enginetest.Offering(z, karpv1.CapacityTypeSpot, s.spot),
		)
	}
	return enginetest.WithOfferings(it, offerings...)
}

// instanceTypes are the script's own types, or four sizes of one family.
func (w *world) instanceTypes() []*catalog.InstanceType {
	if w.types == nil {
		for i, name := range []string{"m.small", "m.medium", "m.large", "m.xlarge"} {
			has := enginetest.Resources("cpu", fmt.Sprint(1<<i), "memory", fmt.Sprintf("%dGi", 4<<i), "pods", "110")
			labels := map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}
			w.types = append(
				w.types,
				w.newType(typeSpec{name: name, onDemand: 0.05 * float64(int(1)<<i), spot: -1, zones: w.zones, capacity: has, labels: labels}),
			)
		}
	}
	return w.types
}

// doUnavailable makes offerings unavailable: unavailable TYPE [zone=...] [capacity=...].
func (w *world) doUnavailable(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	zone, capacity := "", ""
	if err := l.take(arguments{
		"zone":     func(_, v string) error { zone = v; return nil },
		"capacity": func(_, v string) error { capacity = v; return oneOf(v, "spot", "on-demand") },
	}); err != nil {
		return err
	}
	it, err := w.findType(name)
	if err != nil {
		return err
	}
	for i := range it.Offerings {
		if o := &it.Offerings[i]; (zone == "" || o.Zone == zone) && (capacity == "" || o.CapacityType == capacity) {
			o.Available = false
		}
	}
	return nil
}

func (w *world) findType(name string) (*catalog.InstanceType, error) {
	i := slices.IndexFunc(w.instanceTypes(), func(it *catalog.InstanceType) bool { return it.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no type %q so far", name)
	}
	return w.types[i], nil
}

func (w *world) doPool(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	np := &karpv1.NodePool{}
	disruption := &np.Spec.Disruption
	disruption.ConsolidateAfter, disruption.ConsolidationPolicy = karpv1.After(0), karpv1.ConsolidationWhenEmptyOrUnderutilized
	disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	require := func(key, v string) error {
		x := expression(key, v)
		enginetest.Require(x.Key, x.Operator, x.Values...)(np)
		return nil
	}
	short := func(key string) func(_, v string) error { return func(_, v string) error { return require(key, v) } }
	limits := corev1.ResourceList{}
	err = l.take(arguments{
		"budget": func(_, v string) error { return budget(disruption, v) },
		"policy": func(_, v string) error {
			disruption.ConsolidationPolicy = map[string]karpv1.ConsolidationPolicy{
				"empty": karpv1.ConsolidationWhenEmpty, "balanced": karpv1.ConsolidationBalanced,
			}[v]
			return oneOf(v, "empty", "balanced")
		},
		"consolidate-after": func(_, v string) error {
			if v == "never" {
				disruption.ConsolidateAfter = karpv1.Never()
				return nil
			}
			d, err := duration(v)
			disruption.ConsolidateAfter = karpv1.After(d)
			return err
		},
		"replicas": func(_, v string) error { n, err := number(v); np.Spec.Replicas = new(int64(n)); return err },
		"weight":   func(_, v string) error { n, err := number(v); enginetest.Weight(int32(n))(np); return err },
		"limit:":   func(key, v string) error { return quantity(limits, key, v) },
		"zone":     short("zone"),
		"type":     short("type"),
		"arch":     short("arch"),
		"capacity": short("capacity"),
		"require:": require,
		"min:": func(key, v string) error {
			n, err := number(v)
			if x := expression(key, "*"); err == nil {
				enginetest.Require(x.Key, x.Operator)(np)
				enginetest.MinValues(n)(np)
			}
			return err
		},
		"label:": func(key, v string) error { enginetest.TemplateLabel(label(key), v)(np); return nil },
		"taint": func(_, v string) error {
			t, err := taint(v)
			np.Spec.Template.Spec.Taints = append(np.Spec.Template.Spec.Taints, t)
			return err
		},
	})
	if len(limits) > 0 {
		np.Spec.Limits = limits
	}
	pool := enginetest.Pool(name, w.instanceTypes())
	ref := pool.NodePool.Spec.Template.Spec.NodeClassRef
	pool.NodePool.Spec = np.Spec
	pool.NodePool.Spec.Template.Spec.NodeClassRef = ref
	pool.NodePool.Status.Conditions = []metav1.Condition{{Type: condition.Ready, Status: metav1.ConditionTrue}}
	if pool.NodePool.Spec.Replicas != nil { // it launches nothing for pods
		w.snap.Closed = append(w.snap.Closed, pool.NodePool)
		return err
	}
	w.snap.Pools = append(w.snap.Pools, pool)
	return err
}

// budget adds a budget to those of a pool: 1, 10%, or 0/Drifted for one reason. The first replaces the default.
func budget(d *karpv1.Disruption, value string) error {
	nodes, reason, _ := strings.Cut(value, "/")
	b := karpv1.Budget{Nodes: nodes}
	if reason != "" {
		b.Reasons = []karpv1.DisruptionReason{karpv1.DisruptionReason(reason)}
	}
	if len(d.Budgets) == 1 && d.Budgets[0].Nodes == "100%" {
		d.Budgets = nil
	}
	d.Budgets = append(d.Budgets, b)
	return nil
}

func (w *world) doDaemon(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	p := enginetest.Pod(name, enginetest.Labeled("app", name))
	if err := w.podArguments(p, &l, nil); err != nil {
		return err
	}
	w.snap.DaemonSets = append(w.snap.DaemonSets, snapshot.DaemonSet{Namespace: "default", Name: name, Pod: p})
	return nil
}

// node is an initialized node.
func (w *world) node(name, pool string, it *catalog.InstanceType, o catalog.Offering) snapshot.Node {
	n := enginetest.Node(name, pool)
	n.Allocatable, n.Capacity, n.Price = it.Allocatable, it.Capacity, o.Price
	for _, r := range it.Requirements.All() {
		if v, ok := r.Single(); ok {
			n.Labels[r.Key()] = v
		}
	}
	n.Labels[corev1.LabelTopologyZone], n.Labels[karpv1.LabelCapacityType] = o.Zone, o.CapacityType
	return n
}

func (w *world) doNode(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	pool, typeName, offering := "", w.instanceTypes()[0].Name, catalog.Offering{
		Zone:         w.zones[0],
		CapacityType: karpv1.CapacityTypeOnDemand,
	}
	var edits []func(*snapshot.Node)
	edit := func(f func(*snapshot.Node)) { edits = append(edits, f) }
	all := w.passArguments(edit)
	maps.Copy(all, arguments{
		"pool":     func(_, v string) error { pool = v; return nil },
		"type":     func(_, v string) error { typeName = v; return nil },
		"zone":     func(_, v string) error { offering.Zone = v; return nil },
		"capacity": func(_, v string) error { offering.CapacityType = v; return oneOf(v, "spot", "on-demand") },
		"label:":   func(key, v string) error { edit(func(n *snapshot.Node) { n.Labels[label(key)] = v }); return nil },
		"taint": func(_, v string) error {
			t, err := taint(v)
			edit(func(n *snapshot.Node) { n.Taints = append(n.Taints, t) })
			return err
		},
		"nominated": func(_, v string) error { w.nominated[name] = strings.Split(v, ","); return nil },
		"-deleting": func(_, _ string) error { edit(func(n *snapshot.Node) { n.Deleting = true }); return nil },
		"-in-flight": func(_, _ string) error { // launched, not up yet
			edit(func(n *snapshot.Node) { n.Registered, n.Initialized, n.Ready = false, false, false })
			return nil
		},
		"-unlaunched": func(_, _ string) error { // not launched yet
			edit(func(n *snapshot.Node) {
				n.Launched, n.Registered, n.Initialized, n.Ready = false, false, false, false
			})
			return nil
		},
	})
	if err := l.take(all); err != nil {
		return err
	}
	it, err := w.findType(typeName)
	if err != nil {
		return err
	}
	n := w.node(name, pool, it, offering)
	for _, e := range edits {
		e(&n)
	}
	w.snap.Nodes = append(w.snap.Nodes, n)
	w.countAgainstLimits(pool, n.Capacity)
	return nil
}

// passArguments are those of a node that only passes over nodes depend on.
func (w *world) passArguments(edit func(func(*snapshot.Node))) arguments {
	return arguments{
		"age": func(_, v string) error {
			d, err := duration(v)
			edit(func(n *snapshot.Node) { n.CreatedAt = w.snap.Now.Add(-d) })
			return err
		},
		"drifted": func(_, v string) error {
			d, err := duration(v)
			edit(func(n *snapshot.Node) { n.DriftedAt = w.snap.Now.Add(-d) })
			return err
		},
		"-resize": func(_, _ string) error { edit(func(n *snapshot.Node) { n.DriftedForResize = true }); return nil },
		"unhealthy": func(_, v string) error {
			d, err := duration(v)
			edit(func(n *snapshot.Node) {
				n.Unhealthy, n.Ready = true, false
				n.Repair = &repair.Decision{Action: karpv1.RepairReplace, EligibleAt: w.snap.Now.Add(-d), Score: d.Minutes()}
			})
			return err
		},
		"-reboot": func(_, _ string) error { // a reboot may repair it
			edit(func(n *snapshot.Node) {
				if n.Repair != nil {
					n.Repair.Action = karpv1.RepairReboot
				}
			})
			return nil
		},
		"-maintenance": func(_, _ string) error { edit(func(n *snapshot.Node) { n.MaintenancePlanned = true }); return nil },
		"-busy":        func(_, _ string) error { edit(func(n *snapshot.Node) { n.Consolidatable = false }); return nil },
		"-do-not-disrupt": func(_, _ string) error {
			edit(func(n *snapshot.Node) { n.Annotations = map[string]string{karpv1.AnnotationDoNotDisrupt: "true"} })
			return nil
		},
		"-bounded": func(_, _ string) error { edit(func(n *snapshot.Node) { n.Bounded = true }); return nil },
	}
}

// doDelete starts the deletion of a node: its pods need another.
func (w *world) doDelete(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	n, err := w.findNode(name)
	if err != nil {
		return err
	}
	n.Deleting = true
	for _, p := range n.Pods {
		if !slices.Contains(w.snap.Pods, p) {
			w.snap.Pods = append(w.snap.Pods, p)
		}
	}
	return l.take(nil)
}

// checkNominations resolves nominations by name to UIDs.
func (w *world) checkNominations() error {
	for name, pods := range w.nominated {
		n, err := w.findNode(name)
		if err != nil {
			return err
		}
		for _, p := range w.snap.Pods {
			if slices.Contains(pods, w.group[p.UID]) {
				n.Nominated = append(n.Nominated, p.UID)
			}
		}
	}
	clear(w.nominated)
	return nil
}

func (w *world) doVolume(l line) error {
	name, err := l.name()
	if err != nil {
		return err
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	class := "wait"
	claim.Spec.StorageClassName = &class
	err = l.take(arguments{
		"class": func(_, v string) error { class = v; return oneOf(v, "wait", "now") },
		"-once": func(_, _ string) error {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
			return nil
		},
		"zone": func(_, v string) error {
			pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name}}
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{expression("zone", v)}},
			}}}
			claim.Spec.VolumeName = pv.Name
			claim.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			w.snap.Volumes.Volumes[pv.Name] = pv
			return nil
		},
	})
	w.snap.Volumes.Claims[types.NamespacedName{Namespace: "default", Name: name}] = claim
	return err
}
