package incumbent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Loop is the controller at work: it launches nodes of one instance type for pending pods, takes NodeClaims through their life, and
// removes nodes that are empty. It is a stand-in that leaves a cluster as the conventions do: it neither packs well nor consolidates, and
// replaces no node that has drifted.
type Loop struct {
	*Controller
	// Image is the ID of the image of nodes.
	Image string

	emptySince map[string]time.Time // by the names of NodeClaims
}

// seen is what a pass reads.
type seen struct {
	claims []object
	nodes  map[string]*corev1.Node // by provider ID
	pods   map[string][]*corev1.Pod
	wait   []*corev1.Pod
}

func (l *Loop) read(ctx context.Context) (seen, error) {
	out := seen{nodes: map[string]*corev1.Node{}, pods: map[string][]*corev1.Pod{}}
	var err error
	if out.claims, err = l.list(ctx, coreGroup, "NodeClaim"); err != nil {
		return out, err
	}
	var nodes corev1.NodeList
	if err := l.Kube.List(ctx, &nodes); err != nil {
		return out, err
	}
	var pods corev1.PodList
	if err := l.Kube.List(ctx, &pods); err != nil {
		return out, err
	}
	for i := range nodes.Items {
		if id := nodes.Items[i].Spec.ProviderID; id != "" {
			out.nodes[id] = &nodes.Items[i]
		}
	}
	for i := range pods.Items {
		switch pod := &pods.Items[i]; {
		case serves(pod):
			out.wait = append(out.wait, pod)
		case pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			out.pods[pod.Spec.NodeName] = append(out.pods[pod.Spec.NodeName], pod)
		}
	}
	return out, nil
}

// Begin does what the controller does when it starts: it resolves the NodePool and its EC2NodeClass, or takes them as another controller
// has left them, and hashes.
func (l *Loop) Begin(ctx context.Context, pool string) error {
	l.emptySince = map[string]time.Time{}
	_, class, err := l.poolAndClass(ctx, pool)
	if err != nil {
		return err
	}
	if text(class, "status", "instanceProfile") == "" {
		return l.Prepare(ctx, pool, l.Image)
	}
	return l.Rehash(ctx)
}

// Pass looks at the cluster once, and does what is to be done at that moment. What fails is tried again by the next pass.
func (l *Loop) Pass(ctx context.Context, pool string, now time.Time) error {
	s, err := l.read(ctx)
	if err != nil {
		return err
	}
	var errs []error
	var free []room
	for i := range s.claims {
		claim := &s.claims[i]
		node := s.nodes[text(claim, "status", "providerID")]
		if err := l.advance(ctx, claim, node); err != nil && !errors.Is(err, ErrNotYet) {
			errs = append(errs, err)
		}
		switch {
		case claim.GetDeletionTimestamp() != nil:
		case node == nil || !conditionTrue(claim, "Initialized"):
			free = append(free, emptyNode())
		default:
			free = append(free, roomOn(node, s.pods[node.Name]))
		}
	}
	for _, node := range launches(free, s.wait) {
		if err := l.launch(ctx, pool, cpuOf(node)); err != nil {
			errs = append(errs, err)
			break
		}
	}
	return errors.Join(append(errs, l.removeEmpty(ctx, pool, s, now))...)
}

// advance takes a NodeClaim one step further.
func (l *Loop) advance(ctx context.Context, claim *object, node *corev1.Node) error {
	name := claim.GetName()
	switch {
	case claim.GetDeletionTimestamp() != nil:
		return l.finish(ctx, claim, node)
	case text(claim, "status", "providerID") == "":
		return l.launchFor(ctx, claim)
	case !conditionTrue(claim, "Registered"):
		if err := l.Register(ctx, name); err != nil {
			return err
		}
		return l.transitioned(ctx, claim, "Registered")
	case !conditionTrue(claim, "Initialized"):
		if err := l.Initialize(ctx, name); err != nil {
			return err
		}
		return l.transitioned(ctx, claim, "Initialized")
	default:
		return nil
	}
}

// launch creates a NodeClaim, and launches its instance.
func (l *Loop) launch(ctx context.Context, pool, cpu string) error {
	claim, err := l.Create(ctx, Node{Pool: pool, InstanceType: loopType, CapacityType: onDemand, CPU: cpu})
	if err != nil {
		return err
	}
	return l.launchFor(ctx, claim)
}

// launchFor launches the instance of a NodeClaim by its requirements.
func (l *Loop) launchFor(ctx context.Context, claim *object) error {
	if err := l.Launch(ctx, claim, requested(claim)); err != nil {
		return err
	}
	return l.transitioned(ctx, claim, "Launched")
}

// requested is the node that the requirements of a NodeClaim name. Its subnet follows from its name, so that nodes are in all zones.
func requested(claim *object) Node {
	n := Node{Pool: claim.GetLabels()[nodePoolLabel], InstanceType: loopType, CapacityType: onDemand}
	all, _, _ := unstructured.NestedSlice(claim.Object, "spec", "requirements")
	for _, r := range all {
		one, _ := r.(map[string]any)
		values, _, _ := unstructured.NestedStringSlice(one, "values")
		if len(values) == 0 || one["operator"] != "In" {
			continue
		}
		switch one["key"] {
		case corev1.LabelInstanceTypeStable:
			n.InstanceType = values[0]
		case capacityTypeLabel:
			n.CapacityType = values[0]
		}
	}
	for _, letter := range claim.GetName() {
		n.Subnet += int(letter)
	}
	return n
}

// removeEmpty deletes NodeClaims of empty nodes, once a node has been empty for as long as the NodePool states.
func (l *Loop) removeEmpty(ctx context.Context, pool string, s seen, now time.Time) error {
	p, err := l.get(ctx, coreGroup, "NodePool", pool)
	if err != nil {
		return err
	}
	after, err := time.ParseDuration(text(p, "spec", "disruption", "consolidateAfter"))
	if err != nil { // Never
		return nil
	}
	var errs []error
	for i := range s.claims {
		claim := &s.claims[i]
		node := s.nodes[text(claim, "status", "providerID")]
		if node == nil || claim.GetDeletionTimestamp() != nil || !conditionTrue(claim, "Initialized") || holdsAny(s.pods[node.Name]) {
			delete(l.emptySince, claim.GetName())
			continue
		}
		since, known := l.emptySince[claim.GetName()]
		if !known {
			l.emptySince[claim.GetName()] = now
		}
		if !known || now.Sub(since) < after {
			continue
		}
		errs = append(errs, l.remove(ctx, claim, node))
	}
	return errors.Join(errs...)
}

func holdsAny(pods []*corev1.Pod) bool {
	for _, p := range pods {
		if holds(p) {
			return true
		}
	}
	return false
}

// remove begins the end of an empty node. The next passes finish it.
func (l *Loop) remove(ctx context.Context, claim *object, node *corev1.Node) error {
	if _, err := l.BeginDisruption(ctx, claim.GetName()); err != nil {
		return err
	}
	of := corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: node.Name, UID: node.UID}
	return errors.Join(
		l.event(ctx, of, "DisruptionTerminating", "Disrupting Node: Empty"),
		l.event(ctx, reference(claim), "DisruptionTerminating", "Disrupting NodeClaim: Empty"),
		l.Kube.Delete(ctx, claim),
	)
}

// finish goes on with a NodeClaim that is being deleted: it drains the Node, terminates the instance, and removes the finalizers.
func (l *Loop) finish(ctx context.Context, claim *object, node *corev1.Node) error {
	if node != nil {
		if err := l.Kube.Delete(ctx, node); err != nil {
			return fmt.Errorf("delete Node %s: %w", node.Name, err)
		}
		if err := l.drain(ctx, node); err != nil {
			return err
		}
	}
	if id := instanceID(text(claim, "status", "providerID")); id != "" {
		if err := l.terminateInstance(ctx, claim.GetName(), id); err != nil && !strings.Contains(err.Error(), "InvalidInstanceID.NotFound") {
			return err
		}
	}
	if node != nil {
		if err := l.release(ctx, node); err != nil {
			return err
		}
	}
	return l.release(ctx, claim)
}

// transitioned is the event of a condition that has become True.
func (l *Loop) transitioned(ctx context.Context, claim *object, condition string) error {
	return l.event(ctx, reference(claim), condition, fmt.Sprintf(
		"Status condition transitioned, Type: %s, Status: Unknown -> True, Reason: %s", condition, condition,
	))
}

func reference(o *object) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: o.GetKind(), APIVersion: o.GetAPIVersion(), Name: o.GetName(), UID: o.GetUID()}
}

// event creates an event of the controller's.
func (l *Loop) event(ctx context.Context, of corev1.ObjectReference, reason, message string) error {
	now := metav1.Now()
	return l.Kube.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: of.Name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: of, Reason: reason, Message: message, Type: corev1.EventTypeNormal, Count: 1,
		FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: "karpenter"},
	})
}
