package awstest

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// group adds a placement group.
func (w *world) group(name, strategy string, partitions int) string {
	w.t.Helper()
	id, err := w.Sim.AddPlacementGroup(awsim.PlacementGroup{Name: name, Strategy: strategy, Partitions: partitions})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// placing is a class with a placement group.
func placing(selector awsv1.PlacementGroupSelector) *awsv1.EC2NodeClass {
	class := nodeClass("default")
	class.Spec.PlacementGroupSelector = &selector
	return class
}

func placementReady(t *testing.T, c *cloud, class *awsv1.EC2NodeClass, status metav1.ConditionStatus, reason string) {
	t.Helper()
	r := c.ResolveNodeClass(t.Context(), class)
	if got := conditionOf(r, awsv1.ConditionPlacementGroupReady); got.Status != status || reason != "" && got.Reason != reason ||
		r.Next > time.Minute {
		t.Errorf("%+v, again in %v", got, r.Next)
	}
}

func TestPlacementGroupOfANodeClass(t *testing.T) {
	w := newWorld(t)
	id := w.group("near", "cluster", 0)
	byName := placing(awsv1.PlacementGroupSelector{Name: "near"})
	c := w.start(w.config("uid-1"))
	placementReady(t, c, byName, metav1.ConditionTrue, "")
	placementReady(t, c, placing(awsv1.PlacementGroupSelector{ID: id}), metav1.ConditionTrue, "")
	placementReady(t, c, placing(awsv1.PlacementGroupSelector{Name: "none"}), metav1.ConditionFalse, "PlacementGroupNotFound")
	placementReady(
		t,
		c,
		placing(awsv1.PlacementGroupSelector{ID: "pg-0123456789abcdef0"}),
		metav1.ConditionFalse,
		"PlacementGroupNotFound",
	)
	t.Run("nothing is validated without its group", func(t *testing.T) {
		got := conditionOf(
			c.ResolveNodeClass(t.Context(), placing(awsv1.PlacementGroupSelector{Name: "none"})),
			awsv1.ConditionValidationSucceeded,
		)
		if got.Status != metav1.ConditionFalse || got.Reason != "DependenciesNotReady" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("may not be read", func(t *testing.T) {
		w.Sim.Inject(
			awsim.Fault{
				Service: "ec2",
				Action:  "DescribePlacementGroups",
				Error:   protocol.Errorf("UnauthorizedOperation", "You are not authorized to perform this operation.").WithStatus(403),
			},
		)
		placementReady(t, w.start(w.config("uid-1")), byName, metav1.ConditionFalse, "PlacementGroupResolutionFailed")
	})
	t.Run("one that is being deleted is not found, and stays so", func(t *testing.T) {
		if err := w.Sim.DeletePlacementGroup("near"); err != nil {
			t.Fatal(err)
		}
		w.Clock.Advance(time.Minute - time.Second)
		placementReady(t, c, byName, metav1.ConditionTrue, "") // EC2 was queried less than a minute ago
		w.Clock.Advance(time.Second)
		for range 3 {
			placementReady(t, c, byName, metav1.ConditionFalse, "PlacementGroupNotFound")
			w.Clock.Advance(20 * time.Second)
		}
	})
}

func TestLaunchIntoAPlacementGroup(t *testing.T) {
	w := newWorld(t)
	near := w.group("near", "cluster", 0)
	parts := w.group("parts", "partition", 3)
	c := w.start(w.config("uid-1"))
	class := placing(awsv1.PlacementGroupSelector{Name: "near"})
	resolve(t, c, class)
	stampHash(t, c, class)
	node := launched(t, c, class, claim("near-1", onDemand))
	w.advancePastDelays()
	seen, err := c.Get(t.Context(), node.Status.ProviderID)
	if err != nil || seen.Placement.GroupID != near || node.Labels[awsv1.LabelPlacementGroupID] != near {
		t.Errorf("placed %+v, %v; labels %v", seen.Placement, err, node.Labels)
	}
	if _, partitioned := node.Labels[awsv1.LabelPlacementGroupPartition]; partitioned {
		t.Errorf("labels %v", node.Labels)
	}
	drifts(t, c, class, node, "")
	t.Run("a process that starts anew adopts it as it is", func(t *testing.T) {
		again := launched(t, w.start(w.config("uid-1")), class, claim("near-1", onDemand))
		if again.Status.ProviderID != node.Status.ProviderID || again.Labels[awsv1.LabelPlacementGroupID] != near {
			t.Errorf("%s, labels %v", again.Status.ProviderID, again.Labels)
		}
	})
	t.Run("the group is no longer requested", func(t *testing.T) {
		free := class.DeepCopy()
		free.Spec.PlacementGroupSelector = nil
		drifts(t, c, free, node, "PlacementGroupDrift")
	})
	t.Run("a group that cannot be found makes nothing drift", func(t *testing.T) {
		lost := class.DeepCopy()
		lost.Spec.PlacementGroupSelector.Name = "none"
		if reason, err := c.Drift(t.Context(), lost, node); reason != "" || err == nil {
			t.Errorf("drift %q, %v", reason, err)
		}
	})
	t.Run("while EC2 fails, launches go into the group as it was last known, and the condition stays", func(t *testing.T) {
		w.Clock.Advance(2 * time.Minute)
		bad := awsim.Fault{
			Service: "ec2",
			Action:  "DescribePlacementGroups",
			Error:   protocol.Errorf("InternalError", "bad minute").WithStatus(500),
			Times:   2,
		}
		w.Sim.Inject(bad)
		r := c.ResolveNodeClass(t.Context(), class)
		if got := conditionOf(r, awsv1.ConditionPlacementGroupReady); got.Status != "unchanged" || r.Err == nil {
			t.Errorf("%+v, %v", got, r.Err)
		}
		node := launched(t, c, class, claim("near-2", onDemand))
		w.advancePastDelays()
		if seen, err := c.Get(t.Context(), node.Status.ProviderID); err != nil || seen.Placement.GroupID != near {
			t.Errorf("placed %+v, %v", seen.Placement, err)
		}
		t.Run("a process that never knew it launches nothing", func(t *testing.T) {
			w.Sim.ClearFaults()
			w.Sim.Inject(bad)
			_, err := w.start(w.config("uid-1")).Launch(t.Context(), claim("near-3", onDemand), class)
			var create *cloudprovider.CreateError
			if !errors.As(err, &create) || create.Reason != "PlacementGroupResolutionFailed" {
				t.Error(err)
			}
			w.Sim.ClearFaults()
		})
	})
	t.Run("a group that has gone launches nothing", func(t *testing.T) {
		lost := class.DeepCopy()
		lost.Spec.PlacementGroupSelector.Name = "none"
		_, err := c.Launch(t.Context(), claim("near-4", onDemand), lost)
		var unready *cloudprovider.NodeClassNotReadyError
		if !errors.As(err, &unready) {
			t.Error(err)
		}
	})
	t.Run("partitions", func(t *testing.T) {
		class := placing(awsv1.PlacementGroupSelector{ID: parts})
		resolve(t, c, class)
		chosen := launched(t, c, class, claim("parts-1", onDemand, in(awsv1.LabelPlacementGroupPartition, "3", "2")))
		open := launched(t, c, class, claim("parts-2", onDemand))
		if label, there := open.Labels[awsv1.LabelPlacementGroupPartition]; !there || label != "" ||
			chosen.Labels[awsv1.LabelPlacementGroupPartition] != "2" {
			t.Errorf("labels %v and %v", chosen.Labels, open.Labels)
		}
		if p, err := c.Partition(t.Context(), open.Status.ProviderID); p != "" || err != nil {
			t.Errorf("right after the launch: partition %q, %v", p, err)
		}
		w.advancePastDelays()
		for node, want := range map[string]string{chosen.Status.ProviderID: "2", open.Status.ProviderID: "1"} {
			if p, err := c.Partition(t.Context(), node); p != want || err != nil {
				t.Errorf("partition %q, %v, want %s", p, err, want)
			}
		}
	})
}
