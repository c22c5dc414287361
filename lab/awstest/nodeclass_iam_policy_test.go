package awstest

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// What a node class needs, the policy that the product prints allows: dry runs, zonal shifts, profiles of former roles.
func TestNodeClassUnderThePolicy(t *testing.T) {
	w := enforcing(t)
	before, after := awsim.NodeRole(clusterName), awsim.ControllerRole(clusterName)
	document, err := policy.New(policy.Params{
		Cluster: clusterName, Identity: blueUID, Region: "us-east-1", Account: "111122223333", NodeRoles: []string{before, after},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := w.controller(blueUID, document)
	cfg.DisableDryRun, cfg.ZonalShift = false, true
	c := w.start(cfg)
	if err := c.RefreshZonalShifts(t.Context()); err != nil {
		t.Error(err)
	}
	w.group("apart", "spread", 0)
	class := placing(awsv1.PlacementGroupSelector{Name: "apart"})
	class.Spec.Tags = nil
	if got, r := checked(t, c, class); got.Status != metav1.ConditionTrue || r.Err != nil {
		t.Errorf("%+v, %v", got, r.Err)
	}
	former := class.Status.InstanceProfile
	class.Spec.Role = after
	checked(t, c, class)
	gone, err := w.collected(c, 2*time.Hour, names(class.Status.InstanceProfile))
	if err != nil || len(gone) != 1 || gone[0] != former {
		t.Errorf("gone %v, %v", gone, err)
	}
	if err := c.DeleteNodeClassResources(t.Context(), class); err != nil {
		t.Error(err)
	}
	if denied := w.deniedCalls(); len(denied) > 0 {
		t.Errorf("denied calls: %v", denied)
	}
}
