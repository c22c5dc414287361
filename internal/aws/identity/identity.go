// Package identity says which cluster this is and whose an instance is.
//
// A cluster's name is not unique: clusters are copied, restored and built side by side under one name.
// What is unique is the UID of its kube-system namespace. It is written as a tag on everything that is
// created in AWS, and an instance without it is never terminated or tagged.
package identity

import (
	"errors"
	"fmt"
	"maps"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloud"
)

// TagNodeClaimUID is the tag with the UID of the NodeClaim that an instance was launched for. Names of
// claims may come again, UIDs do not.
const TagNodeClaimUID = "dovetail.sh/nodeclaim-uid"

// Identity is one incarnation of a cluster in one account and region. All fields are needed.
type Identity struct {
	// ClusterUID is the UID of the kube-system namespace.
	ClusterUID string
	// ClusterName is the name of the EKS cluster, settings.clusterName.
	ClusterName string
	AccountID   string
	Region      string
}

// Validate names the first field that is missing. Without a UID nothing could be told apart.
func (i Identity) Validate() error {
	for _, f := range []struct{ name, value string }{
		{"cluster UID", i.ClusterUID},
		{"cluster name", i.ClusterName},
		{"region", i.Region},
	} {
		if f.value == "" {
			return fmt.Errorf("identity without %s", f.name)
		}
	}
	return nil
}

// ClusterTag is the key of the tag whose value awsv1.TagOwned marks what belongs to the cluster's name.
func (i Identity) ClusterTag() string { return awsv1.TagClusterPrefix + i.ClusterName }

// Tags are those of everything that is created for a node class. user's tags yield to them.
func (i Identity) Tags(nodeClass string, user map[string]string) map[string]string {
	tags := make(map[string]string, len(user)+5)
	maps.Copy(tags, user)
	tags[i.ClusterTag()] = awsv1.TagOwned
	tags[awsv1.TagClusterName] = i.ClusterName
	tags[awsv1.TagNodeClass] = nodeClass
	tags[awsv1.TagClusterUID] = i.ClusterUID
	return tags
}

// LaunchTags are Tags plus the pool's name, which may be empty.
func (i Identity) LaunchTags(nodeClass, nodePool string, user map[string]string) map[string]string {
	tags := i.Tags(nodeClass, user)
	tags[awsv1.TagNodePool] = nodePool
	return tags
}

// Owner says whose an instance with these tags is. matched tells that a Node of this API server has the
// instance's provider ID and that a NodeClaim has it too; it only matters where the UID tag is missing.
func (i Identity) Owner(tags map[string]string, matched bool) cloud.Ownership {
	uid, tagged := tags[awsv1.TagClusterUID]
	switch {
	case tagged && uid != "" && uid == i.ClusterUID:
		return cloud.Ours
	case tagged && uid != "":
		return cloud.Foreign
	case matched && i.named(tags):
		return cloud.Adoptable
	default:
		return cloud.Unknown
	}
}

// named reports whether the tags are those that an autoscaler of a cluster of this name writes.
func (i Identity) named(tags map[string]string) bool {
	_, pooled := tags[awsv1.TagNodePool]
	return pooled && (tags[awsv1.TagClusterName] == i.ClusterName || tags[i.ClusterTag()] == awsv1.TagOwned)
}

// ErrNotOurs means that an instance does not carry this cluster's identity, so nothing may be done to it.
var ErrNotOurs = errors.New("instance is not ours")

// Owned is proof that an instance carries this cluster's identity. Only Prove makes one.
type Owned struct{ instanceID string }

// InstanceID is the instance that the proof is about; empty in the zero value, which proves nothing.
func (o Owned) InstanceID() string { return o.instanceID }

// Prove decides about an instance by its tags as they were read, not by its field Owner.
func (i Identity) Prove(instance cloud.Instance) (Owned, error) {
	owner := i.Owner(instance.Tags, false)
	if owner == cloud.Ours && instance.ID != "" {
		return Owned{instanceID: instance.ID}, nil
	}
	if uid := instance.Tags[awsv1.TagClusterUID]; owner == cloud.Foreign {
		return Owned{}, fmt.Errorf("%w: instance %s belongs to the cluster with UID %s, this is %s", ErrNotOurs, instance.ID, uid, i.ClusterUID)
	}
	return Owned{}, fmt.Errorf("%w: instance %s has no tag %s", ErrNotOurs, instance.ID, awsv1.TagClusterUID)
}
