package inspect

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cluster"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/snapshot"
	"github.com/dovetail-k8s/dovetail/internal/manifest"
)

// Recorded makes the View of what a controller saw once: the objects, the node classes, and the Snapshot made of them. The caller sets
// the NominationWindow that the Snapshot was made with.
func Recorded(objects cluster.Objects, classes []*awsv1.EC2NodeClass, snap *snapshot.Snapshot) *View {
	state := &manifest.ClusterState{Objects: objects, NodeClasses: map[string]*awsv1.EC2NodeClass{}, Now: snap.Now}
	state.Pools = nil
	for _, c := range classes {
		state.NodeClasses[c.Name] = c
	}
	launched := recordedCatalog{}
	for i := range objects.Pools {
		p := &objects.Pools[i]
		state.NodePools = append(state.NodePools, p.NodePool)
		if ref := p.Spec.Template.Spec.NodeClassRef; p.InstanceTypes != nil && awsv1.IsEC2NodeClass(ref) {
			launched[ref.Name] = p.InstanceTypes
			if state.NodeClasses[ref.Name] == nil { // a pool that can launch nodes has one, even if it is not recorded
				state.NodeClasses[ref.Name] = &awsv1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: ref.Name}}
			}
		}
	}
	return &View{
		ClusterState: state, Snapshot: snap, Catalog: launched, Notes: []string{},
		Prices: "the controller's recording of " + snap.Now.UTC().Format(time.RFC3339),
	}
}

// recordedCatalog has, by node class, what pools could launch.
type recordedCatalog map[string][]*catalog.InstanceType

// errNotRecorded is the error of a class that no pool launched nodes of.
var errNotRecorded = errors.New("the recording does not have what this node class can launch: no NodePool could launch nodes of it")

// Types implements planner.Catalog.
func (c recordedCatalog) Types(class *awsv1.EC2NodeClass) ([]*catalog.InstanceType, error) {
	if class == nil || c[class.Name] == nil {
		return nil, errNotRecorded
	}
	return c[class.Name], nil
}
