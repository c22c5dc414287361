package identity

import (
	"errors"
	"fmt"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// ErrNotOurs means that a resource does not have this cluster's identity, and must not be changed.
var ErrNotOurs = errors.New("not ours")

// Kind is the kind of resource that a proof is about.
type Kind string

// The kinds of resources that are deleted or tagged.
const (
	Instance        Kind = "instance"
	LaunchTemplate  Kind = "launch template"
	InstanceProfile Kind = "instance profile"
)

// Owned is proof that a resource has this cluster's identity. Only Prove returns one; the zero value
// proves nothing.
type Owned struct {
	kind Kind
	id   string
}

// ID is the ID of the resource. The error is ErrNotOurs when the proof is for another kind.
func (o Owned) ID(kind Kind) (string, error) {
	if o.id == "" || o.kind != kind {
		return "", fmt.Errorf("%w: no proof that the %s is", ErrNotOurs, kind)
	}
	return o.id, nil
}

// Prove decides about a resource by its tags. The error is ErrNotOurs, and names the owner if there is one.
func (i Identity) Prove(kind Kind, id string, tags map[string]string) (Owned, error) {
	owner := i.Owner(tags, Match{})
	switch {
	case owner == cloudprovider.Ours && id != "":
		return Owned{kind: kind, id: id}, nil
	case owner == cloudprovider.Foreign:
		return Owned{}, fmt.Errorf(
			"%s %s is %w: it belongs to the cluster with UID %s, this is %s",
			kind,
			id,
			ErrNotOurs,
			tags[awsv1.TagClusterUID],
			i.ClusterUID,
		)
	case kind == Instance:
		return Owned{}, fmt.Errorf(
			"instance %s is %w: it has no tag %s, and neither a Node nor a NodeClaim here; inspect it, and tag it with `dovetail adopt %s` if it is this cluster's",
			id,
			ErrNotOurs,
			awsv1.TagClusterUID,
			id,
		)
	default:
		return Owned{}, fmt.Errorf("%s %s is %w: it has no tag %s", kind, id, ErrNotOurs, awsv1.TagClusterUID)
	}
}

// Adoption is proof that a resource without identity may be tagged with this cluster's. Only Adopt and
// Release return one for instances, AdoptProfile for instance profiles; the zero value proves nothing.
type Adoption struct {
	kind Kind
	id   string
	tags map[string]string
}

// Tags are the resource and the tags that make it this cluster's. The error is ErrNotOurs when the proof is for another
// kind.
func (a Adoption) Tags(kind Kind) (id string, tags map[string]string, err error) {
	if a.id == "" || a.kind != kind {
		return "", nil, fmt.Errorf("%w: no proof that the %s may be adopted", ErrNotOurs, kind)
	}
	return a.id, a.tags, nil
}

// Adopt decides about an instance that an earlier autoscaler has launched.
func (i Identity) Adopt(instance cloudprovider.Instance, match Match) (Adoption, error) {
	if owner := i.Owner(instance.Tags, match); owner != cloudprovider.Adoptable || instance.ID == "" {
		return Adoption{}, fmt.Errorf("adopt instance %s: it is %s, %w", instance.ID, owner, ErrNotOurs)
	}
	return Adoption{kind: Instance, id: instance.ID, tags: map[string]string{
		awsv1.TagClusterUID: i.ClusterUID, TagNodeClaimUID: match.ClaimUID, awsv1.TagNodeClaim: match.ClaimName,
	}}, nil
}

// Release decides about an instance that a person wants to tag as this cluster's. It must have the
// cluster's name, and no identity.
func (i Identity) Release(instance cloudprovider.Instance) (Adoption, error) {
	switch owner := i.Owner(instance.Tags, Match{}); {
	case owner == cloudprovider.Ours:
		return Adoption{}, fmt.Errorf("instance %s already belongs to this cluster", instance.ID)
	case owner == cloudprovider.Foreign:
		_, err := i.Prove(Instance, instance.ID, instance.Tags)
		return Adoption{}, err
	case instance.ID == "" || !i.named(instance.Tags):
		return Adoption{}, fmt.Errorf(
			"instance %s is %w: its tags do not name cluster %s and a node pool",
			instance.ID,
			ErrNotOurs,
			i.ClusterName,
		)
	}
	return Adoption{kind: Instance, id: instance.ID, tags: map[string]string{awsv1.TagClusterUID: i.ClusterUID}}, nil
}

// AdoptProfile decides about an instance profile without identity. It is adoptable if its path has the
// UID of a node class of this API server.
func (i Identity) AdoptProfile(name, path, ofClass string, tags map[string]string) (Adoption, error) {
	if tags[awsv1.TagClusterUID] != "" || name == "" || ofClass == "" || path != ofClass {
		_, err := i.Prove(InstanceProfile, name, tags)
		return Adoption{}, err
	}
	return Adoption{kind: InstanceProfile, id: name, tags: map[string]string{awsv1.TagClusterUID: i.ClusterUID}}, nil
}
