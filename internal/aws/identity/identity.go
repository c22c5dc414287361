// Package identity identifies the cluster, and decides which cluster a resource in AWS belongs to.
//
// A cluster's name is not unique: clusters are copied, restored and built side by side under one name.
// What is unique is the UID of its kube-system namespace. It is written as a tag on everything that is
// created in AWS, and a resource without it is never terminated, deleted or tagged.
//
// Calls that delete or change a resource take a proof: Owned, or Adoption for the one call that tags a resource
// with this cluster's identity. Only this package creates proofs, and internal/archtest fails when such a call is
// added to a function that takes none.
package identity

import (
	"fmt"
	"maps"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// TagNodeClaimUID is the tag with the UID of the NodeClaim that an instance was launched for. Names of
// claims may be used again, UIDs are not.
const TagNodeClaimUID = "dovetail.sh/nodeclaim-uid"

// Tags of instances that were launched for several claims at once, see cloudprovider.BatchSlot.
const (
	// TagLaunch is the ID of the launch.
	TagLaunch = "dovetail.sh/launch"
	// TagUnusedSlots are the slots of the launch without an instance, ascending, separated by spaces. The tag is missing if there are
	// none.
	TagUnusedSlots = "dovetail.sh/launch-left-out"
)

// Identity is one incarnation of a cluster in one account and region. All fields are needed.
type Identity struct {
	// ClusterUID is the UID of the kube-system namespace.
	ClusterUID string
	// ClusterName is the name of the EKS cluster, settings.clusterName.
	ClusterName string
	AccountID   string
	Region      string
}

// Validate names the first field that is missing. Without a UID, clusters could not be distinguished.
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

// ClusterTag is the key of the tag that marks, with the value awsv1.TagOwned, what belongs to the cluster's name.
func (i Identity) ClusterTag() string { return awsv1.TagClusterPrefix + i.ClusterName }

// Tags returns those of everything that is created for a node class. They win over the user's tags.
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

// Match is the NodeClaim of this API server that has an instance's provider ID, if a Node of this API
// server has it, too. The zero value is none.
type Match struct{ ClaimName, ClaimUID string }

// Owner decides which cluster an instance with these tags belongs to. match only matters without the UID tag.
func (i Identity) Owner(tags map[string]string, match Match) cloudprovider.Ownership {
	uid := tags[awsv1.TagClusterUID]
	switch {
	case uid != "" && uid == i.ClusterUID:
		return cloudprovider.Ours
	case uid != "":
		return cloudprovider.Foreign
	case match != Match{} && i.named(tags) && claims(tags, match):
		return cloudprovider.Adoptable
	default:
		return cloudprovider.Unknown
	}
}

// named reports whether the tags are those that an autoscaler of a cluster with this name writes.
func (i Identity) named(tags map[string]string) bool {
	_, pooled := tags[awsv1.TagNodePool]
	if name, said := tags[awsv1.TagClusterName]; said {
		return pooled && name == i.ClusterName
	}
	return pooled && tags[i.ClusterTag()] == awsv1.TagOwned
}

// claims reports whether the tags name the matching claim, if they name one.
func claims(tags map[string]string, match Match) bool {
	name, uid := tags[awsv1.TagNodeClaim], tags[TagNodeClaimUID]
	return (name == "" || name == match.ClaimName) && (uid == "" || uid == match.ClaimUID)
}
