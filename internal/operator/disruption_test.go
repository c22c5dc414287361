package operator

import (
	"errors"
	"testing"
	"time"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// No node drifts by a list of instance types that EC2 gave to an earlier process.
func TestDriftIsNotFoundByAnEarlierList(t *testing.T) {
	d := driftSource{earlier: func() (time.Time, bool) { return time.Time{}, true }}
	if types, err := d.InstanceTypes(t.Context(), &awsv1.EC2NodeClass{}); types != nil || !errors.Is(err, cloudprovider.ErrNotKnownYet) {
		t.Errorf("types %v, error %v", types, err)
	}
}
