package instance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
	"github.com/dovetail-k8s/dovetail/internal/destroy"
)

// ErrAdopting means that an instance has just been tagged with this cluster's identity, and EC2 does not show the tag
// yet. Retry.
var ErrAdopting = errors.New("instance is being adopted from the previous autoscaler")

// Terminate terminates one of our instances with the API server's permit, which must be for the NodeClaim that its tags name; an
// adoptable one is adopted first. It returns nil once termination has begun, cloudprovider.ErrNotFound when the instance is terminated, an
// error that is identity.ErrNotOurs when the instance has another owner, and destroy.ErrNotProven when it is another NodeClaim's.
func (s *Instances) Terminate(ctx context.Context, permit destroy.Permit) error {
	providerID, err := permit.ProviderID()
	if err != nil {
		return err
	}
	i, err := s.Get(ctx, providerID)
	if err != nil {
		return err
	}
	if err := permit.Covers(i); err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	if i.State == cloudprovider.ShuttingDown {
		return nil
	}
	if i.Owner == cloudprovider.Adoptable {
		// Another cluster may adopt the instance at the same time: read its owner, do not assume it.
		if err := s.Adopt(ctx, i); err != nil {
			return err
		}
		if i, err = s.Get(ctx, providerID); err != nil {
			return err
		}
		if i.Owner == cloudprovider.Adoptable {
			return fmt.Errorf("terminate instance %s: %w", i.ID, ErrAdopting)
		}
	}
	owned, err := s.identity.Prove(identity.Instance, i.ID, i.Tags)
	if err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	_, err = s.terminations.Do(ctx, struct{}{}, owned)
	if awserrors.Is(err, awserrors.NotFound) {
		_, err = s.missing(i.ID)
		return cmp.Or(err, ErrNotVisible)
	}
	if err != nil {
		s.meter.TerminationFailed(i.Zone, i.ZoneID)
		return fmt.Errorf("terminate instance %s: %w", i.ID, err)
	}
	permit.Used(i)
	s.launched.Delete(i.ID)
	s.noteEnding(i)
	return nil
}

// Adopt tags an adoptable instance with this cluster's identity, once: for a while after that, EC2 may still describe the instance as it
// was. Read the owner afterwards: another cluster may have done the same.
func (s *Instances) Adopt(ctx context.Context, i cloudprovider.Instance) error {
	may, err := s.identity.Adopt(i, s.match(i.ProviderID))
	if err != nil {
		return err
	}
	_, err, _ = s.adoptions.Do(i.ID, func() (any, error) {
		if _, done := s.adopted.Get(i.ID); done {
			return nil, nil
		}
		if err := s.adopt(ctx, may); err != nil {
			return nil, err
		}
		s.adopted.Set(i.ID, struct{}{})
		return nil, nil
	})
	return err
}

// Release tags an instance with this cluster's identity because a person confirmed that it belongs to this cluster.
func (s *Instances) Release(ctx context.Context, i cloudprovider.Instance) error {
	may, err := s.identity.Release(i)
	if err != nil {
		return err
	}
	return s.adopt(ctx, may)
}

func (s *Instances) adopt(ctx context.Context, may identity.Adoption) error {
	id, tags, err := may.Tags(identity.Instance)
	if err != nil {
		return err
	}
	if _, err := s.api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: Tags(tags)}); err != nil {
		return fmt.Errorf("tag instance %s: %w", id, err)
	}
	return nil
}

// AddNameTags tags one of our instances with the names of its node and NodeClaim, once the node has joined. Existing
// tags stay: they may be the user's. Its reads are batched slowly, so that one call reads many instances. The error is
// cloudprovider.ErrNotFound when the instance is terminated, and identity.ErrNotOurs when it has another owner.
func (s *Instances) AddNameTags(ctx context.Context, providerID, node, claim string) error {
	i, err := s.get(ctx, providerID, s.slowDescribes)
	if err != nil {
		return err
	}
	if i.Owner == cloudprovider.Adoptable {
		if err := s.Adopt(ctx, i); err != nil {
			return err
		}
		return fmt.Errorf("tag instance %s: %w", i.ID, ErrAdopting)
	}
	owned, err := s.identity.Prove(identity.Instance, i.ID, i.Tags)
	if err != nil {
		return fmt.Errorf("tag: %w", err)
	}
	missing := map[string]string{awsv1.TagName: node, awsv1.TagNodeClaim: claim, awsv1.TagClusterName: s.identity.ClusterName}
	maps.DeleteFunc(missing, func(key, _ string) bool {
		_, there := i.Tags[key]
		return there
	})
	if len(missing) == 0 {
		return nil
	}
	return s.createTags(ctx, owned, missing)
}

func (s *Instances) createTags(ctx context.Context, owned identity.Owned, tags map[string]string) error {
	id, err := owned.ID(identity.Instance)
	if err != nil {
		return err
	}
	_, err = s.api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: Tags(tags)})
	if awserrors.Is(err, awserrors.NotFound) {
		_, err = s.missing(id)
		return cmp.Or(err, ErrNotVisible)
	}
	if err != nil {
		return fmt.Errorf("tag instance %s: %w", id, err)
	}
	return nil
}

// Tags converts tags to EC2's form, by key.
func Tags(tags map[string]string) []ec2types.Tag {
	out := make([]ec2types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}
