package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/deploy"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/incumbent"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// handedBack is how many nodes Dovetail launches before it goes.
const handedBack = 5

// handBack removes the controller from a cluster, and lets another controller of the same API go on with its nodes.
func handBack() Scenario {
	h := &handBackRun{}
	return Scenario{
		Name: "hand-back",
		Summary: fmt.Sprintf("%d nodes of Dovetail are handed to another Karpenter controller, and back: no restart, no drift, nothing unknown",
			handedBack),
		Steps: []Step{
			startController(),
			{
				Name:    fmt.Sprintf("launch %d nodes, with the controller killed in between: all pods run", handedBack),
				Timeout: 2 * time.Minute, PauseKills: true, Run: h.launch,
			},
			{
				Name:    "kill Dovetail and remove its RBAC; another controller starts: it finds no drift, no garbage, no finalizer that is not its own",
				Timeout: time.Minute, PauseKills: true, Run: h.handOver,
			},
			{
				Name:    "the other controller launches a node of its own: nothing is disturbed",
				Timeout: time.Minute, PauseKills: true, Run: h.goOn,
			},
			{
				Name:    "the other controller terminates a node of Dovetail's: nothing holds its objects",
				Timeout: time.Minute, PauseKills: true, Run: h.terminate,
			},
			{
				Name:    "install Dovetail again: it adopts the other controller's node and replaces the terminated one; nothing is disturbed",
				Timeout: time.Minute, PauseKills: true, Run: h.comeBack,
			},
			{
				Name: "the other controller is stopped while it replaces two nodes, one of which it deletes: " +
					"Dovetail keeps the one, and terminates the other",
				Timeout: 2 * time.Minute, PauseKills: true, Run: h.halfDone,
			},
		},
	}
}

// handBackRun is one run of the scenario.
type handBackRun struct {
	watch *undisturbed
	other *incumbent.Controller
	// ofDovetail is the name of a NodeClaim of Dovetail's.
	ofDovetail string
}

// launch has Dovetail launch its nodes. It is killed between the launch of the instances and their registration.
func (h *handBackRun) launch(ctx context.Context, w *World) error {
	if err := apply(ctx, w, manifests.Takeover, map[string]string{"GENERATION": "1", "BUDGET": "100%"}); err != nil {
		return err
	}
	if err := awaitPoolReady(ctx, w); err != nil {
		return err
	}
	if err := killInTurn(ctx, w, []killPoint{
		{name: "CreateFleet has taken effect", nth: 1, call: controllerCall("CreateFleet")},
		{name: "a NodeClaim is registered", nth: 1, object: claimBetween(karpv1.ConditionRegistered, karpv1.ConditionInitialized)},
	}, func() error {
		return apply(ctx, w, manifests.OnePerNode, map[string]string{"REPLICAS": fmt.Sprint(handedBack)})
	}); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, handedBack); err != nil {
		return err
	}
	return errors.Join(awaitInitialized(ctx, w), awaitPaired(ctx, w))
}

// awaitInitialized waits until there is a NodeClaim per pod, all NodeClaims are initialized, and their instances have their names as tags.
func awaitInitialized(ctx context.Context, w *World) error {
	return world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		if n := len(claims.Items); n != handedBack { // a node that is empty after the kills goes
			return fmt.Errorf("there are %d NodeClaims, want %d", n, handedBack)
		}
		for _, c := range claims.Items {
			if why := notReady(c.Status.Conditions); why != "" {
				return fmt.Errorf("NodeClaim %s is not ready: %s", c.Name, why)
			}
		}
		for _, i := range w.Running() {
			if i.Tags["Name"] == "" || i.Tags[world.NodeClaimTag] == "" {
				return fmt.Errorf("instance %s has no tag Name or %s", i.ID, world.NodeClaimTag)
			}
		}
		return nil
	})
}

// handOver kills Dovetail, removes what lets it work, and starts the other controller.
func (h *handBackRun) handOver(ctx context.Context, w *World) (err error) {
	if h.watch, err = watchUndisturbed(ctx, w, perNodeApp); err != nil {
		return err
	}
	if err := errors.Join(w.KillController(), w.Delete(ctx, deploy.RBAC)); err != nil {
		return err
	}
	if h.other, err = newIncumbent(ctx, w); err != nil {
		return err
	}
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return err
	}
	h.ofDovetail = claims.Items[0].Name
	return h.clean(ctx, w, handedBack)
}

// clean starts the other controller, which must find this many NodeClaims, and nothing to change.
func (h *handBackRun) clean(ctx context.Context, w *World, want int) error {
	found, claims, err := h.other.Start(ctx)
	if err != nil {
		return err
	}
	if claims != want {
		found = append(found, fmt.Sprintf("there are %d NodeClaims, want %d", claims, want))
	}
	if len(found) > 0 {
		return errors.New(strings.Join(found, "\n"))
	}
	w.Note("%d NodeClaims: nothing to replace, to collect or to repair", claims)
	return nil
}

// launchNode has the other controller launch a node, and returns the name of its NodeClaim.
func (h *handBackRun) launchNode(ctx context.Context) (string, error) {
	n := incumbent.Node{Pool: "default", InstanceType: "m5.large", CapacityType: "on-demand", CPU: "1"}
	claim, err := h.other.Create(ctx, n)
	if err != nil {
		return "", err
	}
	if err := h.other.Launch(ctx, claim, n); err != nil {
		return "", err
	}
	for _, step := range []func(context.Context, string) error{h.other.Register, h.other.Initialize} {
		if err := world.Until(ctx, func() error { return step(ctx, claim.GetName()) }); err != nil {
			return "", err
		}
	}
	return claim.GetName(), nil
}

// goOn has the other controller launch a node for one pod more.
func (h *handBackRun) goOn(ctx context.Context, w *World) error {
	if _, err := h.launchNode(ctx); err != nil {
		return err
	}
	if err := w.Scale(ctx, perNodeApp, handedBack+1); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, handedBack+1); err != nil {
		return err
	}
	return errors.Join(h.watch.end(ctx, w), h.clean(ctx, w, handedBack+1))
}

// terminate has the other controller terminate a node.
func (h *handBackRun) terminate(ctx context.Context, w *World) error {
	if err := h.other.Terminate(ctx, h.ofDovetail); err != nil {
		return err
	}
	if err := awaitSomeRunning(ctx, w, perNodeApp, handedBack); err != nil {
		return err
	}
	return h.clean(ctx, w, handedBack)
}

// comeBack installs Dovetail again.
func (h *handBackRun) comeBack(ctx context.Context, w *World) error {
	watch, err := watchUndisturbed(ctx, w, perNodeApp)
	if err != nil {
		return err
	}
	if err := w.Apply(ctx, deploy.RBAC); err != nil {
		return err
	}
	if err := w.StartController(ctx); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, handedBack+1); err != nil {
		return err
	}
	if err := world.Until(ctx, func() error { return adoptedAll(ctx, w, handedBack+1) }); err != nil {
		return err
	}
	return errors.Join(watch.end(ctx, w), awaitPaired(ctx, w))
}

// halfDone kills Dovetail, has the other controller launch a node and begin to replace that one and another, and starts Dovetail.
func (h *handBackRun) halfDone(ctx context.Context, w *World) error {
	kept, err := someClaim(ctx, w)
	if err != nil {
		return err
	}
	if err := w.KillController(); err != nil {
		return err
	}
	deleted, err := h.launchNode(ctx)
	if err != nil {
		return err
	}
	if err := w.Scale(ctx, perNodeApp, handedBack+2); err != nil {
		return err
	}
	if err := awaitPodsRunning(ctx, w, perNodeApp, handedBack+2); err != nil {
		return err
	}
	instance, err := instanceOf(ctx, w, deleted)
	if err != nil {
		return err
	}
	stay := slices.DeleteFunc(w.Running(), func(i awsim.Instance) bool { return i.ID == instance })
	node, err := h.other.BeginDisruption(ctx, kept)
	if err := errors.Join(err, h.other.BeginTermination(ctx, deleted), w.StartController(ctx)); err != nil {
		return err
	}
	err = world.Until(ctx, func() error {
		var n corev1.Node
		if err := w.Client.Get(ctx, client.ObjectKey{Name: node}, &n); err != nil {
			return err
		}
		if slices.ContainsFunc(n.Spec.Taints, karpv1.IsTaintDisrupted) {
			return fmt.Errorf("node %s is still tainted", node)
		}
		if slices.ContainsFunc(w.Running(), func(i awsim.Instance) bool { return i.ID == instance }) {
			return fmt.Errorf("instance %s of the deleted NodeClaim runs", instance)
		}
		return adoptedAll(ctx, w, handedBack+2)
	})
	if err != nil {
		return err
	}
	for _, i := range stay {
		if !slices.ContainsFunc(w.Running(), func(r awsim.Instance) bool { return r.ID == i.ID }) {
			return fmt.Errorf("instance %s was terminated, although its NodeClaim was not deleted", i.ID)
		}
	}
	return errors.Join(awaitPodsRunning(ctx, w, perNodeApp, handedBack+2), awaitPaired(ctx, w))
}

// someClaim is the name of a NodeClaim.
func someClaim(ctx context.Context, w *World) (string, error) {
	var claims karpv1.NodeClaimList
	if err := list(ctx, w, &claims); err != nil {
		return "", err
	}
	return claims.Items[0].Name, nil
}

// instanceOf is the ID of the instance of a NodeClaim.
func instanceOf(ctx context.Context, w *World, claim string) (string, error) {
	var c karpv1.NodeClaim
	err := w.Client.Get(ctx, client.ObjectKey{Name: claim}, &c)
	return c.Status.ProviderID[strings.LastIndexByte(c.Status.ProviderID, '/')+1:], err
}
