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

// Protected is how long a profile is kept after it was made, and after it was last seen in use: what has just named it may not be
// visible yet, and an instance may be on its way with it.
const MinAge = time.Hour

// prefix is the path of all profiles of clusters of this name in the region.
func (p *Profiles) prefix() string {
	return fmt.Sprintf("/karpenter/%s/%s/", p.identity.Region, p.identity.ClusterName)
}

// Collect deletes the profiles of this cluster that nothing has used for as long as they are protected. What is used is asked after
// the profiles have been listed, so that one which is made and used meanwhile is not among them. Failures do not keep other profiles
// from being deleted. The names of those that went are returned.
func (p *Profiles) Collect(ctx context.Context, use func(ctx context.Context) (cloudprovider.ProfileUse, error)) ([]string, error) {
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

// idle are the profiles that have not been in use for long enough.
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

// classUID is the UID of the node class that a profile was made for.
func (p *Profiles) classUID(profile iamtypes.InstanceProfile) string {
	return strings.TrimSuffix(strings.TrimPrefix(aws.ToString(profile.Path), p.prefix()), "/")
}

// collect deletes one profile, if it is ours. One without identity is, if it was made for a node class that is there.
func (p *Profiles) deleteUnused(ctx context.Context, profile iamtypes.InstanceProfile, used cloudprovider.ProfileUse) (bool, error) {
	name := aws.ToString(profile.InstanceProfileName)
	found, err := p.get(ctx, name) // the list does not tell tags
	if err != nil || found == nil {
		return false, err
	}
	ofClass := ""
	if uid := p.classUID(*found); used.Classes[uid] {
		ofClass = uid
	}
	owned, err := p.proveOwnership(ctx, found, ofClass)
	if errors.Is(err, identity.ErrNotOurs) {
		return false, nil // another cluster's of this name, or left by one that is no more
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
