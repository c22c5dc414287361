package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// DefaultOutage is what fails in start-without-aws: EC2 and the Pricing API answer nothing that the start reads, and EKS fails.
var DefaultOutage = []string{"ec2.Describe*=hang", "pricing.*=hang", "eks.*=InternalError"}

// startingTaint is a startup taint, as of a network plugin.
const startingTaint = "example.com/starting"

// readyWithin is how long a start may take until the probes succeed, whatever fails.
const readyWithin = 20 * time.Second

// startWithoutAWS restarts the controller while AWS fails for it. The outage is faults as `dovetail-lab aws --fault` takes them.
func startWithoutAWS(outage []string) Scenario {
	o := &outageRun{faults: outage}
	return Scenario{
		Name: "start-without-aws",
		Summary: "the controller restarts while EC2, EKS and the Pricing API fail: it is ready, drains, follows taints and interruptions, " +
			"and launches when they answer, or with what they answered before",
		Steps: []Step{
			{
				Name: "route EventBridge events of instances to the interruption queue", Timeout: time.Second,
				Run: func(_ context.Context, w *World) error { return w.EnableInterruptionQueue() },
			},
			startController(),
			installPool(manifests.Default, nil),
			{Name: "three pods get a node each; one node keeps its startup taint", Timeout: 90 * time.Second, Run: o.prepare},
			{
				Name: "AWS fails, and the controller is killed and started: it is ready", Timeout: readyWithin, Exact: true,
				Run: o.restart,
			},
			{Name: "the startup taint is removed: its node is initialized, and the pod runs", Timeout: 20 * time.Second, Run: o.initialize},
			{Name: "a deleted node is drained", Timeout: 40 * time.Second, Run: o.drain},
			{Name: "an instance is to be retired: its NodeClaim is deleted", Timeout: 40 * time.Second, Run: o.interrupt},
			{Name: "/readyz and the EC2NodeClass name what it waits for, or which earlier answers it uses", Timeout: 10 * time.Second, Run: o.named},
			{Name: "AWS answers: all pods run, on new nodes", Timeout: 90 * time.Second, Run: o.recover},
			{Name: "nothing was terminated that has a NodeClaim, and the controller has not exited", Timeout: time.Minute, Run: o.check},
			deleteAll(onePerNodeApp, manifests.Default),
		},
	}
}

// outageRun is one run of start-without-aws.
type outageRun struct {
	faults []string
	// nodes are those of the pods, by name; the last keeps its startup taint at first.
	nodes []corev1.Node
	// began is when the controller was started, in real time and on the account's clock.
	began, beganAWS time.Time
}

// fails reports whether calls of a service fail.
func (o *outageRun) fails(service string) bool {
	return slices.ContainsFunc(o.faults, func(f string) bool { return strings.HasPrefix(f, service+".") || strings.HasPrefix(f, "*") })
}

// waits reports whether the outage lasts until the scenario stops it.
func (o *outageRun) waits() bool {
	return !slices.ContainsFunc(o.faults, func(f string) bool { return strings.Contains(f, ",for=") })
}

func (o *outageRun) prepare(ctx context.Context, w *World) error {
	pool := &karpv1.NodePool{}
	if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, pool); err != nil {
		return err
	}
	before := pool.DeepCopy()
	pool.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: startingTaint, Effect: corev1.TaintEffectNoSchedule}}
	if err := w.Client.Patch(ctx, pool, client.MergeFrom(before)); err != nil {
		return err
	}
	if err := apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": "3"}); err != nil {
		return err
	}
	err := world.Until(ctx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		o.nodes = slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return n.Labels[karpv1.LabelRegistered] != "true" })
		if len(o.nodes) != 3 {
			return fmt.Errorf("%d nodes are registered, want 3", len(o.nodes))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range o.nodes[:2] {
		if err := removeTaint(ctx, w, n.Name); err != nil {
			return err
		}
	}
	return world.Until(ctx, func() error { return runningPods(ctx, w, 2) })
}

// removeTaint removes the startup taint of a node, as what it stands for would.
func removeTaint(ctx context.Context, w *World, name string) error {
	return world.Until(ctx, func() error {
		node := &corev1.Node{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == startingTaint })
		return w.Client.Update(ctx, node)
	})
}

// runningPods reports an error unless so many pods run.
func runningPods(ctx context.Context, w *World, want int) error {
	all, err := pods(ctx, w, onePerNodeApp)
	if err != nil {
		return err
	}
	up := 0
	for _, p := range all {
		if running(p) {
			up++
		}
	}
	if up != want {
		return fmt.Errorf("%d of %d pods run, want %d", up, len(all), want)
	}
	return nil
}

func (o *outageRun) restart(ctx context.Context, w *World) error {
	if err := w.KillController(); err != nil {
		return err
	}
	for _, fault := range o.faults {
		if err := w.AWS.InjectSpec(fault + ",by=" + awsim.ControllerRole(w.Name) + "/"); err != nil {
			return err
		}
	}
	o.began, o.beganAWS = time.Now(), w.AWS.Now()
	if err := w.StartController(ctx); err != nil {
		return err
	}
	w.Note("ready after %.1f s", time.Since(o.began).Seconds())
	return nil
}

// claimOf is the NodeClaim of a node.
func claimOf(ctx context.Context, w *World, node corev1.Node) (karpv1.NodeClaim, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return karpv1.NodeClaim{}, err
	}
	for _, c := range claims.Items {
		if c.Status.ProviderID == node.Spec.ProviderID {
			return c, nil
		}
	}
	return karpv1.NodeClaim{}, fmt.Errorf("node %s has no NodeClaim", node.Name)
}

func (o *outageRun) initialize(ctx context.Context, w *World) error {
	if err := removeTaint(ctx, w, o.nodes[2].Name); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		claim, err := claimOf(ctx, w, o.nodes[2])
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionInitialized) {
			return fmt.Errorf("NodeClaim %s is not initialized", claim.Name)
		}
		return runningPods(ctx, w, 3)
	})
}

func (o *outageRun) drain(ctx context.Context, w *World) error {
	if err := w.Client.Delete(ctx, &o.nodes[0]); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		claim, err := claimOf(ctx, w, o.nodes[0])
		if err != nil {
			if !o.fails("ec2") {
				return nil // drained, terminated and gone
			}
			return err
		}
		if !meta.IsStatusConditionTrue(claim.Status.Conditions, karpv1.ConditionDrained) {
			return fmt.Errorf("the node of NodeClaim %s is not drained", claim.Name)
		}
		return nil
	})
}

func (o *outageRun) interrupt(ctx context.Context, w *World) error {
	if o.fails("sqs") {
		w.Note("SQS fails as well")
		return nil
	}
	id := world.InstanceID(o.nodes[1].Spec.ProviderID)
	if err := w.AWS.EC2().PlanEvent("instance-retirement", w.AWS.Now().Add(24*time.Hour), id); err != nil {
		return err
	}
	return world.Until(ctx, func() error {
		claim, err := claimOf(ctx, w, o.nodes[1])
		if err == nil && claim.DeletionTimestamp == nil {
			return fmt.Errorf("NodeClaim %s is not deleted", claim.Name)
		}
		return nil
	})
}

// named reads what the process reports to wait for. Where EKS alone fails, an earlier answer of it is enough, and nothing waits.
func (o *outageRun) named(ctx context.Context, w *World) error {
	text, err := w.Readiness(ctx)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		w.Note("%s", strings.TrimSpace(line))
	}
	if !o.waits() || !o.fails("ec2") {
		return nil
	}
	if !strings.Contains(text, "[-]ec2-instance-types waiting for ") || !strings.Contains(text, "(launches wait)") &&
		!strings.Contains(text, "are used; disruption waits)") {
		return fmt.Errorf("/readyz?verbose does not name what launches wait for, or which earlier answers they use:\n%s", text)
	}
	return world.Until(ctx, func() error {
		class := &awsv1.EC2NodeClass{}
		if err := w.Client.Get(ctx, client.ObjectKey{Name: "default"}, class); err != nil {
			return err
		}
		c := meta.FindStatusCondition(class.Status.Conditions, awsv1.ConditionAWSReachable)
		if c == nil || !strings.Contains(c.Message, "ec2-instance-types") {
			return fmt.Errorf("the EC2NodeClass does not name what launches wait for: %+v", c)
		}
		return nil
	})
}

func (o *outageRun) recover(ctx context.Context, w *World) error {
	ended := time.Now()
	if o.waits() {
		w.AWS.ClearFaults()
	}
	err := world.Until(ctx, func() error {
		var nodes corev1.NodeList
		if err := list(ctx, w, &nodes); err != nil {
			return err
		}
		for _, n := range nodes.Items { // what the startup taint stands for starts on new nodes, too
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == startingTaint }) {
				if err := removeTaint(ctx, w, n.Name); err != nil {
					return err
				}
			}
		}
		return runningPods(ctx, w, 3)
	})
	if err != nil {
		return err
	}
	w.Note("all pods run %.1f s after the last step began, which was %.1f s after the start", time.Since(ended).Seconds(),
		ended.Sub(o.began).Seconds())
	for _, call := range w.AWS.Calls() {
		launched := call.Action == "CreateFleet" && call.ErrorCode == "" && call.Parameters.Get("DryRun") != "true"
		if launched && call.Time.After(o.beganAWS) {
			w.Note("first launch %.1f s after the start", call.Time.Sub(o.beganAWS).Seconds())
			break
		}
	}
	return nil
}

func (o *outageRun) check(ctx context.Context, w *World) error {
	if exits := w.UnexpectedExits(); exits.Times > 0 {
		return fmt.Errorf("the controller has exited %d times: %s", exits.Times, exits.Last)
	}
	claim, err := claimOf(ctx, w, o.nodes[2])
	if err != nil {
		return err
	}
	if claim.DeletionTimestamp != nil {
		return fmt.Errorf("NodeClaim %s was deleted", claim.Name)
	}
	return errors.Join(awaitPaired(ctx, w), runningPods(ctx, w, 3))
}
