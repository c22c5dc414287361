package instanceprofile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// MinAge sets how long a profile is kept after its creation and after its last use: a new reference may not be visible
// yet, and an instance with the profile may be in flight.
const MinAge = time.Hour

// prefix returns the path of all profiles of clusters with this name in the region.
func (p *Profiles) prefix() string {
	return fmt.Sprintf("/karpenter/%s/%s/", p.identity.Region, p.identity.ClusterName)
}

// CollectGarbage deletes the profiles of this cluster that nothing has used for MinAge. It reads the usage after it has
// listed the profiles, so that a profile that is created and used meanwhile is not deleted. A failure does not stop the
// deletion of other profiles. It returns the names of the deleted profiles.
func (p *Profiles) CollectGarbage(ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error)) ([]string, error) {
	all, err := p.list(ctx, p.prefix())
	if err != nil {
		return nil, err
	}
	used, err := use(ctx)
	if err != nil {
		return nil, err
	}
	var gone []string
	var errs []error
	for _, profile := range p.unused(all, used) {
		deleted, err := p.deleteUnused(ctx, profile, used)
		if err != nil {
			errs = append(errs, err)
		}
		if deleted {
			gone = append(gone, aws.ToString(profile.InstanceProfileName))
		}
	}
	return gone, errors.Join(errs...)
}

// unused returns the profiles without use for MinAge.
func (p *Profiles) unused(all []iamtypes.InstanceProfile, used cloudprovider.ProfileUse) []iamtypes.InstanceProfile {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	since := map[string]time.Time{}
	var out []iamtypes.InstanceProfile
	for _, profile := range all {
		name := aws.ToString(profile.InstanceProfileName)
		if used.Names[name] || used.Unsure[p.classUID(profile)] {
			continue
		}
		first, seen := p.unusedSince[name]
		if !seen {
			first = now
		}
		since[name] = first
		if now.Sub(first) >= MinAge && now.Sub(aws.ToTime(profile.CreateDate)) >= MinAge {
			out = append(out, profile)
		}
	}
	p.unusedSince = since
	return out
}

// classUID returns the UID of the node class that a profile was created for.
func (p *Profiles) classUID(profile iamtypes.InstanceProfile) string {
	return strings.TrimSuffix(strings.TrimPrefix(aws.ToString(profile.Path), p.prefix()), "/")
}

// deleteUnused deletes one profile if it is ours. A profile without identity is ours if it was created for an existing
// node class.
func (p *Profiles) deleteUnused(ctx context.Context, profile iamtypes.InstanceProfile, used cloudprovider.ProfileUse) (bool, error) {
	name := aws.ToString(profile.InstanceProfileName)
	found, err := p.get(ctx, name) // the list has no tags
	if err != nil || found == nil {
		return false, err
	}
	ofClass := ""
	if uid := p.classUID(*found); used.Classes[uid] {
		ofClass = uid
	}
	owned, err := p.proveOwnership(ctx, found, ofClass)
	if errors.Is(err, identity.ErrNotOurs) {
		return false, nil // of another cluster with this name, or left by one that no longer exists
	}
	if err != nil {
		return false, err
	}
	if err := p.removeRoles(ctx, owned, found.Roles); err != nil {
		return false, err
	}
	err = p.delete(ctx, owned)
	return err == nil, err
}

func (p *Profiles) list(ctx context.Context, prefix string) ([]iamtypes.InstanceProfile, error) {
	var out []iamtypes.InstanceProfile
	pages := iam.NewListInstanceProfilesPaginator(p.api, &iam.ListInstanceProfilesInput{PathPrefix: aws.String(prefix)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list instance profiles: %w", err)
		}
		out = append(out, page.InstanceProfiles...)
	}
	return out, nil
}
