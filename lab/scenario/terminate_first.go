package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/scenario/manifests"
	"github.com/dovetail-k8s/dovetail/lab/scenario/world"
)

// The NodePools of manifests.TerminateFirst: nodes of the first, all within its limit, and instances of the reservation
// that the second one runs in, all in use.
const (
	fixedPoolNodes    = 2
	reservedPoolNodes = 1
	reservedApp       = "training"
)

// terminateFirst rolls images out to nodes that cannot be replaced before they go.
func terminateFirst() Scenario {
	s := &terminateFirstFixture{images: map[string]string{"FIXED_AMI": oldImage, "RESERVED_AMI": oldImage}, up: map[types.UID]bool{}}
	return Scenario{
		Name: "terminate-first",
		Summary: "a NodePool with replicas at its limit, and a full reservation, get a new AMI node by node, also with the controller killed; " +
			"with an AMI that does not boot, one node is lost",
		Steps: []Step{
			{Name: "a capacity reservation for one instance; start the controller", Timeout: 30 * time.Second, Run: s.start},
			{Name: "create the NodePools and a pod for the reservation: all nodes are initialized", Timeout: time.Minute, Run: s.fill},
			{
				Name: "change the AMI, with the controller killed twice: each node goes before its replacement comes, one at a time", Timeout: 2 * time.Minute,
				Run: s.rollOut,
			},
			{
				Name: "change to an AMI that does not boot, with the controller killed once: one node is lost, and the others stay", Timeout: time.Minute,
				Run: s.loseOne,
			},
			{Name: "delete the workload, NodePools and EC2NodeClasses: nothing is left", Timeout: time.Minute, Run: s.tearDown},
		},
	}
}

// terminateFirstFixture is the state of the scenario.
type terminateFirstFixture struct {
	images map[string]string // variables of manifests.TerminateFirst

	mu sync.Mutex
	// up are the initialized claims of the NodePool with replicas that are not deleting; full is true once all were.
	up   map[types.UID]bool
	full bool
	// fewest is the least number of up since then.
	fewest int
}

// start also watches how many nodes of the NodePool with replicas are up.
func (s *terminateFirstFixture) start(ctx context.Context, w *World) error {
	_, err := w.AWS.AddCapacityReservation(awsim.CapacityReservation{
		InstanceType: "m5.large", Zone: w.AWS.EC2().Zones()[0].Name, Total: reservedPoolNodes, Targeted: true,
		Tags: map[string]string{"karpenter.sh/discovery": w.Name},
	})
	if err != nil {
		return err
	}
	w.History.Watch(s.see)
	w.SetFeatureGates("StaticCapacity=true,TerminateFirstDrift=true")
	return w.StartController(ctx)
}

func (s *terminateFirstFixture) see(o client.Object, gone bool) {
	claim, ok := o.(*karpv1.NodeClaim)
	if !ok || claim.Labels[karpv1.LabelNodePool] != "fixed" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone && claim.DeletionTimestamp == nil && condition.IsTrue(claim, karpv1.ConditionInitialized) {
		s.up[claim.UID] = true
	} else {
		delete(s.up, claim.UID)
	}
	if !s.full && len(s.up) == fixedPoolNodes {
		s.full, s.fewest = true, fixedPoolNodes
	}
	s.fewest = min(s.fewest, len(s.up))
}

// oneAtATime checks that no two nodes of the NodePool with replicas were missing at once.
func (s *terminateFirstFixture) oneAtATime() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.full || s.fewest < fixedPoolNodes-1 {
		return fmt.Errorf("of %d nodes of the NodePool with replicas, only %d were up at some time", fixedPoolNodes, s.fewest)
	}
	return nil
}

func (s *terminateFirstFixture) apply(ctx context.Context, w *World, change map[string]string) error {
	maps.Copy(s.images, change)
	return apply(ctx, w, manifests.TerminateFirst, s.images)
}

func (s *terminateFirstFixture) fill(ctx context.Context, w *World) error {
	err := errors.Join(s.apply(ctx, w, nil), apply(ctx, w, manifests.ReservedWorkload, nil))
	if err != nil {
		return err
	}
	if err := w.Scale(ctx, reservedApp, reservedPoolNodes); err != nil {
		return err
	}
	return s.awaitNodes(ctx, w, oldImage)
}

// awaitNodes waits until exactly the nodes of both pools run with an image, all initialized, and the pod runs.
func (s *terminateFirstFixture) awaitNodes(ctx context.Context, w *World, image string) error {
	err := world.Until(ctx, func() error {
		var claims karpv1.NodeClaimList
		if err := list(ctx, w, &claims); err != nil {
			return err
		}
		up := map[string]int{}
		for i := range claims.Items {
			if c := &claims.Items[i]; c.DeletionTimestamp == nil && condition.IsTrue(c, karpv1.ConditionInitialized) {
				up[c.Labels[karpv1.LabelNodePool]]++
			}
		}
		if up["fixed"] != fixedPoolNodes || up["reserved"] != reservedPoolNodes {
			return fmt.Errorf("%v nodes are initialized, want %d and %d", up, fixedPoolNodes, reservedPoolNodes)
		}
		return nil
	})
	return errors.Join(
		err,
		awaitImage(ctx, w, image, fixedPoolNodes+reservedPoolNodes),
		awaitPodsRunning(ctx, w, reservedApp, reservedPoolNodes),
	)
}

// rollOut kills the controller when it has begun with the first node, and when it has terminated an instance.
func (s *terminateFirstFixture) rollOut(ctx context.Context, w *World) error {
	begin := time.Now()
	err := killInTurn(ctx, w, terminationKillPoints(), func() error {
		return s.apply(ctx, w, map[string]string{"FIXED_AMI": newImage, "RESERVED_AMI": newImage})
	})
	if err != nil {
		return err
	}
	if err := s.awaitNodes(ctx, w, newImage); err != nil {
		return err
	}
	w.Note("all nodes have the new AMI after %.0f s", time.Since(begin).Seconds())
	if n, want := len(w.Instances()), 2*(fixedPoolNodes+reservedPoolNodes); n != want {
		return fmt.Errorf("%d instances were launched in total, want %d", n, want)
	}
	return errors.Join(s.oneAtATime(), oneInstancePerClaim(w))
}

// loseOne changes the NodePool with replicas back to an image that no longer boots.
func (s *terminateFirstFixture) loseOne(ctx context.Context, w *World) error {
	id, err := w.ImageID(ctx, "amazon-eks-node-al2023-x86_64-standard-1.37-"+aliasRelease(oldImage))
	if err != nil {
		return err
	}
	w.BreakImage(id)
	if err := s.apply(ctx, w, map[string]string{"FIXED_AMI": oldImage}); err != nil {
		return err
	}
	if err := s.awaitProbe(ctx, w, id); err != nil {
		return err
	}
	if err := w.KillController(); err != nil {
		return err
	}
	before, restarted := len(w.Instances()), time.Now().Truncate(time.Second)
	if err := w.StartController(ctx); err != nil {
		return err
	}
	message, err := awaitMatchingEvent(ctx, w, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "NodeClaim" && e.LastTimestamp.After(restarted) &&
			strings.HasPrefix(e.Message, "No other node is terminated first")
	}, "of a node that waits for the new one")
	if err != nil {
		return err
	}
	w.Note("%s", message)
	if n := len(w.Instances()); n != before {
		return fmt.Errorf("%d more instances were launched", n-before)
	}
	return errors.Join(s.oneAtATime(), s.awaitProbe(ctx, w, id))
}

// awaitProbe waits until one node was terminated for an image, and its replacement runs without being a node.
func (s *terminateFirstFixture) awaitProbe(ctx context.Context, w *World, image string) error {
	return world.Until(ctx, func() error {
		s.mu.Lock()
		up := len(s.up)
		s.mu.Unlock()
		probes := len(slices.DeleteFunc(w.Running(), func(i awsim.Instance) bool { return i.ImageID != image }))
		if up != fixedPoolNodes-1 || probes != 1 {
			return fmt.Errorf("%d nodes are up, and %d instances have the new AMI; want %d and 1", up, probes, fixedPoolNodes-1)
		}
		return nil
	})
}

func (s *terminateFirstFixture) tearDown(ctx context.Context, w *World) error {
	workload, err := render(w, manifests.ReservedWorkload, nil)
	if err != nil {
		return err
	}
	pools, err := render(w, manifests.TerminateFirst, s.images)
	if err != nil {
		return err
	}
	return errors.Join(w.Delete(ctx, workload), w.Delete(ctx, pools), awaitNothingLeft(ctx, w), awaitEmpty(ctx, w, reservedApp))
}
