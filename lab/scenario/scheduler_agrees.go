package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
	"github.com/dovetail-k8s/dovetail/lab/schedulertest"
	"github.com/dovetail-k8s/dovetail/lab/store"
)

// schedulerAgrees has kube-scheduler bind the pods of plans: a generated cluster per seed, with the nodes of its plan as objects, which no
// kubelet runs. A pod that has to come after others is refused until these are bound, and loses its nomination: it gets it again.
func schedulerAgrees(seeds Seeds) Scenario {
	steps := []Step{{
		Name: "create the namespaces of the generated pods", Timeout: 20 * time.Second,
		Run: func(ctx context.Context, w *World) error {
			for name, labels := range schedulertest.NewPlannedWorld(seeds.First).Namespaces {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
				if name == metav1.NamespaceDefault {
					if err := w.Client.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType,
						[]byte(fmt.Sprintf(`{"metadata":{"labels":{"tier":%q}}}`, labels["tier"])))); err != nil {
						return err
					}
				} else if err := w.Client.Create(ctx, ns); err != nil {
					return err
				}
			}
			return nil
		},
	}}
	for seed := seeds.First; seed < seeds.First+uint64(seeds.Count); seed++ {
		steps = append(steps, Step{
			Name: fmt.Sprintf("seed %d: each pod of the plan is bound, and each new node has one", seed), Timeout: 20 * time.Second,
			Run: func(ctx context.Context, w *World) error {
				return bindsPlan(ctx, w, schedulertest.NewPlannedWorld(seed))
			},
		})
	}
	return Scenario{
		Name:    "scheduler-agrees",
		Summary: "kube-scheduler binds every pod of plans for generated clusters to the planned nodes, and leaves none of these empty",
		Steps:   steps,
	}
}

// bindsPlan writes the cluster, waits until kube-scheduler has bound the plan's pods, and removes it.
func bindsPlan(ctx context.Context, w *World, p schedulertest.PlannedWorld) (err error) {
	etcd, err := w.Store()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	write := func(objects ...client.Object) error {
		return etcd.Write(ctx, len(objects), func(i int) (store.Object, error) { return stored(objects[i]) })
	}
	var nodes, bound, planned []client.Object
	for _, n := range p.Nodes {
		nodes = append(nodes, n)
	}
	for _, pod := range p.Bound {
		bound = append(bound, pod)
	}
	for _, pod := range p.Planned {
		planned = append(planned, pod)
	}
	if len(nodes) == 0 {
		return nil
	}
	last := p.Nodes[len(p.Nodes)-1]
	probe := probeOf(last)
	err = errors.Join(write(nodes[:len(nodes)-1]...), write(last), write(bound...), write(probe))
	if err == nil {
		err = awaitProbe(ctx, w, probe) // kube-scheduler knows all that was written before
	}
	if err != nil {
		return err
	}
	remove := func(objects ...client.Object) error {
		return etcd.Write(ctx, len(objects), func(i int) (store.Object, error) { return store.Object{Key: storeKey(objects[i])}, nil })
	}
	if err := errors.Join(remove(probe), write(planned...), awaitPlanBound(ctx, w, p)); err != nil {
		return err
	}
	if err := remove(slices.Concat(planned, bound, nodes)...); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		var left corev1.NodeList
		var pods corev1.PodList
		if err := list(ctx, w, &left, &pods); err != nil {
			return err
		}
		if n := len(left.Items) + len(pods.Items); n > 0 {
			return fmt.Errorf("%d nodes and pods of the world before are left", n)
		}
		return nil
	})
}

// stored is the object as etcd has it.
func stored(o client.Object) (store.Object, error) {
	kind := "Pod"
	if _, is := o.(*corev1.Node); is {
		kind = "Node"
	}
	value, err := store.Encode(kind, "v1", o)
	return store.Object{Key: storeKey(o), Value: value}, err
}

func storeKey(o client.Object) string {
	if _, is := o.(*corev1.Node); is {
		return "minions/" + o.GetName()
	}
	return "pods/" + o.GetNamespace() + "/" + o.GetName()
}

// probeOf is a pod that runs on the node and on no other.
func probeOf(n *corev1.Node) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "probe", UID: types.UID("probe-" + n.UID), CreationTimestamp: metav1.Now(),
		},
		Spec: corev1.PodSpec{
			SchedulerName: corev1.DefaultSchedulerName, RestartPolicy: corev1.RestartPolicyAlways,
			NodeSelector: map[string]string{corev1.LabelHostname: n.Name},
			Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: "main", Image: "example.com/app"}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

func awaitProbe(ctx context.Context, w *World, probe *corev1.Pod) error {
	return world.Until(ctx, func() error {
		var now corev1.Pod
		if err := w.Client.Get(ctx, client.ObjectKeyFromObject(probe), &now); err != nil {
			return err
		}
		if now.Spec.NodeName == "" {
			return fmt.Errorf("kube-scheduler has not bound the pod %s: %s", now.Name, notScheduled(&now))
		}
		return nil
	})
}

// awaitPlanBound waits until each nominated pod is bound, and checks that each new node has one of them.
func awaitPlanBound(ctx context.Context, w *World, p schedulertest.PlannedWorld) error {
	used := map[string]bool{}
	err := world.Until(ctx, func() error {
		var waiting []string
		for _, pod := range p.Planned {
			var now corev1.Pod
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(pod), &now); err != nil {
				return err
			}
			if now.Spec.NodeName != "" {
				used[now.Spec.NodeName] = true
				continue
			}
			waiting = append(waiting, fmt.Sprintf("%s for %s: %s", pod.Name, pod.Status.NominatedNodeName, notScheduled(&now)))
			if now.Status.NominatedNodeName == "" {
				patch := client.RawPatch(types.MergePatchType, []byte(fmt.Sprintf(`{"status":{"nominatedNodeName":%q}}`, pod.Status.NominatedNodeName)))
				if err := w.Client.Status().Patch(ctx, &now, patch); err != nil {
					return err
				}
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("kube-scheduler has not bound %s", strings.Join(waiting, "; "))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if empty := slices.DeleteFunc(slices.Clone(p.Launched), func(n string) bool { return used[n] }); len(empty) > 0 {
		return fmt.Errorf("no pod of the plan is on %s", strings.Join(empty, ", "))
	}
	w.Note("%d nodes, %d of them new, %d pods", len(p.Nodes), len(p.Launched), len(p.Bound)+len(p.Planned))
	return nil
}

// notScheduled is the last message of kube-scheduler about the pod.
func notScheduled(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			return c.Message
		}
	}
	return "not tried yet"
}
