package termination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/dovetail-k8s/dovetail/internal/controllertest"
)

// lifecycleOf are the conditions of the Node about drains, as in "Drained=True".
func lifecycleOf(f *controllertest.Fixture, name string) string {
	var out []string
	for _, c := range f.Node(name).Status.Conditions {
		if c.Type != corev1.NodeReady {
			out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
	}
	slices.Sort(out)
	return cmp.Or(strings.Join(out, " "), "none")
}

func hasCondition(kind corev1.NodeConditionType, reason string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason})
	}
}

// A Node states that it drains from the taint on, and that it is drained before its instance terminates.
func TestDrainsAreConditionsOfTheNode(t *testing.T) {
	for _, tc := range []struct {
		name string
		on   bool
		node []func(*corev1.Node)
		pods []client.Object
		// first is after one pass, want after two.
		first, want string
	}{
		{
			name: "the pods leave", on: true, pods: []client.Object{controllertest.Pod("p", "node-a")},
			first: "DrainInProgress=True", want: "DrainInProgress=True",
		},
		{
			name: "the taint comes first", on: true, node: []func(*corev1.Node){func(n *corev1.Node) { n.Spec.Taints = nil }},
			pods: []client.Object{controllertest.Pod("p", "node-a")}, first: "none", want: "DrainInProgress=True",
		},
		{
			name: "the pods have gone", on: true, node: []func(*corev1.Node){hasCondition(corev1.NodeDrainInProgress, reasonTermination)},
			first: "DrainInProgress=False Drained=True", want: "DrainInProgress=False Drained=True",
		},
		{
			name: "somebody else drains the node, too", on: true, node: []func(*corev1.Node){hasCondition(corev1.NodeDrainInProgress, "Upgrade")},
			first: "DrainInProgress=True Drained=True", want: "DrainInProgress=True Drained=True",
		},
		{name: "the gate is off", first: "none", want: "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			objects := leaving(drainedBefore)
			for _, change := range tc.node {
				change(objects[1].(*corev1.Node))
			}
			f := controllertest.New(t, append(objects, tc.pods...)...)
			r := nodeReconciler(f, &ec2{})
			r.LifecycleConditions = tc.on
			f.Reconcile(r, "node-a")
			if before := lifecycleOf(f, "node-a"); before != tc.first {
				t.Errorf("at first %q, want %q", before, tc.first)
			}
			f.Reconcile(r, "node-a")
			if got := lifecycleOf(f, "node-a"); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// withoutStatusOfNodes has the API server refuse writes of the status of Nodes while *refused is true, and counts all of these writes.
func withoutStatusOfNodes(f *controllertest.Fixture, refused *bool) (c client.Client, writes *int) {
	writes = new(int)
	return interceptor.NewClient(f.API, interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if _, is := o.(*corev1.Node); is {
				if *writes++; *refused {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("no right to patch nodes/status"))
				}
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	}), writes
}

// A drain goes on without the right to write the status of Nodes.
func TestDrainsGoOnWithoutTheirConditions(t *testing.T) {
	f := controllertest.New(t, leaving(drainedBefore)...)
	cloud := &ec2{}
	r := nodeReconciler(f, cloud)
	r.LifecycleConditions = true
	refused := true
	r.Client, _ = withoutStatusOfNodes(f, &refused)
	f.Reconcile(r, "node-a")
	if len(cloud.terminated) != 1 {
		t.Errorf("terminated %v", cloud.terminated)
	}
}

// Without that right, a drain of two minutes tries it a few times only, and one event reports it. With it, the condition is there soon.
func TestRefusedConditionsAreTriedSeldom(t *testing.T) {
	f := controllertest.New(t, append(leaving(drainedBefore), controllertest.Pod("p", "node-a"))...)
	r := nodeReconciler(f, &ec2{})
	r.LifecycleConditions = true
	refused := true
	c, writes := withoutStatusOfNodes(f, &refused)
	r.Client = c
	drain := func(seconds int) {
		for range seconds {
			f.Reconcile(r, "node-a")
			f.Clock = f.Clock.Add(poll)
		}
	}
	drain(120)
	if *writes != 4 { // at 0, 10, 30 and 70 seconds
		t.Errorf("%d writes in two minutes, want 4", *writes)
	}
	reported := slices.DeleteFunc(f.RecordedEvents(), func(e string) bool { return !strings.Contains(e, "ConditionsNotWritten") })
	if len(reported) != 1 {
		t.Errorf("%d events, want 1", len(reported))
	}
	refused = false
	drain(31)
	if got := lifecycleOf(f, "node-a"); got != "DrainInProgress=True" {
		t.Errorf("with the right: %s", got)
	}
	if *writes != 5 {
		t.Errorf("%d writes at last, want 5", *writes)
	}
}
