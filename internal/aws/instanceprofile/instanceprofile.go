// Package instanceprofile manages the IAM instance profiles that give instances the role of their node class.
//
// The name of a profile is a function of the cluster's identity, the node class and the role. So a controller that is
// killed between the creation of a profile and the write of its name finds the profile again, and two clusters with the
// same name never share one.
package instanceprofile

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/awserrors"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// API is the calls of IAM that Profiles makes.
type API interface {
	iam.ListInstanceProfilesAPIClient
	GetInstanceProfile(
		ctx context.Context,
		in *iam.GetInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.GetInstanceProfileOutput, error)
	CreateInstanceProfile(
		ctx context.Context,
		in *iam.CreateInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.CreateInstanceProfileOutput, error)
	DeleteInstanceProfile(
		ctx context.Context,
		in *iam.DeleteInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.DeleteInstanceProfileOutput, error)
	AddRoleToInstanceProfile(
		ctx context.Context,
		in *iam.AddRoleToInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.AddRoleToInstanceProfileOutput, error)
	TagInstanceProfile(
		ctx context.Context,
		in *iam.TagInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.TagInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(
		ctx context.Context,
		in *iam.RemoveRoleFromInstanceProfileInput,
		optFns ...func(*iam.Options),
	) (*iam.RemoveRoleFromInstanceProfileOutput, error)
}

// NodeClass describes what a profile is created for.
type NodeClass struct {
	Name string
	UID  string
	// Role as in spec.role: a name, with or without a path.
	Role string
	Tags map[string]string
	// Current is the profile that the class uses so far, status.instanceProfile; it may be empty.
	Current string
}

const (
	// ensuredTTL sets how long a profile is assumed to be unchanged.
	ensuredTTL = 15 * time.Minute
	// missingRoleTTL sets how long a role that does not exist is not read again.
	missingRoleTTL = time.Minute
)

// RoleNotFoundError means that the role of a node class does not exist.
type RoleNotFoundError struct{ Role string }

func (e *RoleNotFoundError) Error() string { return fmt.Sprintf("role %q does not exist", e.Role) }

// Profiles are the instance profiles of one cluster.
type Profiles struct {
	api          API
	identity     identity.Identity
	ensured      *ttlcache.Cache[string, string] // profile -> role
	missingRoles *ttlcache.Cache[string, struct{}]
	now          func() time.Time

	mu sync.Mutex
	// unusedSince is the time when a profile was first seen without use, by name.
	unusedSince map[string]time.Time
}

// New returns Profiles with an empty cache.
func New(api API, id identity.Identity, now func() time.Time) *Profiles {
	return &Profiles{
		api:          api,
		identity:     id,
		ensured:      ttlcache.New[string, string](ensuredTTL, now),
		missingRoles: ttlcache.New[string, struct{}](missingRoleTTL, now),
		now:          now,
	}
}

// Name returns the name of the profile for a class with its role.
func (p *Profiles) Name(class NodeClass) string {
	h := sha256.New()
	for _, part := range []string{p.identity.ClusterUID, p.identity.Region, class.UID, roleName(class.Role)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%s_%d", p.identity.ClusterName, binary.BigEndian.Uint64(h.Sum(nil)))
}

// path returns the path of all profiles of a class.
func (p *Profiles) path(uid string) string {
	return p.prefix() + uid + "/"
}

// roleName returns the last part of a role's path: profiles refer to roles by name only.
func roleName(role string) string { return role[strings.LastIndexByte(role, '/')+1:] }

// Ensure returns the name of a profile that exists and has the role of the class. It keeps the profile that the class
// already uses if that has the role. The error is a *RoleNotFoundError when the role does not exist.
func (p *Profiles) Ensure(ctx context.Context, class NodeClass) (string, error) {
	role := roleName(class.Role)
	names := []string{p.Name(class)}
	if class.Current != "" && class.Current != names[0] {
		names = append([]string{class.Current}, names...)
	}
	for _, name := range names {
		if known, ok := p.ensured.Get(name); ok && known == role {
			return name, nil
		}
	}
	if _, absent := p.missingRoles.Get(role); absent {
		return "", &RoleNotFoundError{Role: role}
	}
	if len(names) > 1 {
		if found, err := p.get(ctx, class.Current); err != nil {
			return "", err
		} else if found != nil && !p.isForeign(found) && hasOnlyRole(found, role) {
			p.ensured.Set(class.Current, role)
			return class.Current, nil
		}
	}
	name := p.Name(class)
	if err := p.create(ctx, name, role, class); err != nil {
		return "", fmt.Errorf("instance profile %s for node class %s: %w", name, class.Name, err)
	}
	p.ensured.Set(name, role)
	return name, nil
}

// create creates the profile step by step. Each step continues from what earlier attempts left.
func (p *Profiles) create(ctx context.Context, name, role string, class NodeClass) error {
	found, err := p.get(ctx, name)
	if err != nil {
		return err
	}
	if found == nil {
		_, err := p.api.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{
			InstanceProfileName: aws.String(name),
			Path:                aws.String(p.path(class.UID)),
			Tags:                p.tags(class),
		})
		if err != nil && !awserrors.Is(err, awserrors.AlreadyExists) {
			return fmt.Errorf("create: %w", err)
		}
		found = &iamtypes.InstanceProfile{}
	}
	if hasOnlyRole(found, role) {
		return nil
	}
	if len(found.Roles) > 0 {
		owned, err := p.proveOwnership(ctx, found, class.UID)
		if err != nil {
			return err
		}
		if err := p.removeRoles(ctx, owned, found.Roles); err != nil {
			return err
		}
	}
	_, err = p.api.AddRoleToInstanceProfile(
		ctx,
		&iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: aws.String(role)},
	)
	if awserrors.Is(err, awserrors.RoleNotFound) {
		p.missingRoles.Set(role, struct{}{})
		return errors.Join(&RoleNotFoundError{Role: role}, p.remove(ctx, name, class.UID))
	}
	if err != nil {
		return fmt.Errorf("add role %s: %w", role, err)
	}
	return nil
}

func (p *Profiles) tags(class NodeClass) []iamtypes.Tag {
	tags := p.identity.Tags(class.Name, class.Tags)
	tags[awsv1.TagRegion] = p.identity.Region
	return sortedTags(tags)
}

func sortedTags(tags map[string]string) []iamtypes.Tag {
	out := make([]iamtypes.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

// get returns nil for a profile that does not exist.
func (p *Profiles) get(ctx context.Context, name string) (*iamtypes.InstanceProfile, error) {
	out, err := p.api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if awserrors.Is(err, awserrors.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get instance profile %s: %w", name, err)
	}
	return out.InstanceProfile, nil
}

func hasOnlyRole(profile *iamtypes.InstanceProfile, role string) bool {
	return len(profile.Roles) == 1 && aws.ToString(profile.Roles[0].RoleName) == role
}

// isForeign reports whether another cluster with the same name created the profile.
func (p *Profiles) isForeign(profile *iamtypes.InstanceProfile) bool {
	return p.identity.Owner(tagsOf(profile), identity.Match{}) == cloudprovider.Foreign
}

func tagsOf(profile *iamtypes.InstanceProfile) map[string]string {
	out := make(map[string]string, len(profile.Tags))
	for _, tag := range profile.Tags {
		out[aws.ToString(tag.Key)] = aws.ToString(tag.Value)
	}
	return out
}

// proveOwnership proves that a profile is ours. It first adopts a profile without identity that a previous autoscaler
// created for the class.
func (p *Profiles) proveOwnership(ctx context.Context, profile *iamtypes.InstanceProfile, classUID string) (identity.Owned, error) {
	name, tags := aws.ToString(profile.InstanceProfileName), tagsOf(profile)
	if owned, err := p.identity.Prove(identity.InstanceProfile, name, tags); err == nil {
		return owned, nil
	}
	may, err := p.identity.AdoptProfile(name, aws.ToString(profile.Path), p.path(classUID), tags)
	if err != nil {
		return identity.Owned{}, err
	}
	if err := p.adopt(ctx, may); err != nil {
		return identity.Owned{}, err
	}
	again, err := p.get(ctx, name)
	if err != nil || again == nil {
		return identity.Owned{}, errors.Join(fmt.Errorf("instance profile %s no longer exists", name), err)
	}
	return p.identity.Prove(identity.InstanceProfile, name, tagsOf(again))
}

func (p *Profiles) adopt(ctx context.Context, may identity.Adoption) error {
	name, tags, err := may.Tags(identity.InstanceProfile)
	if err != nil {
		return err
	}
	_, err = p.api.TagInstanceProfile(ctx, &iam.TagInstanceProfileInput{InstanceProfileName: aws.String(name), Tags: sortedTags(tags)})
	if err != nil {
		return fmt.Errorf("tag instance profile %s: %w", name, err)
	}
	return nil
}

func (p *Profiles) removeRoles(ctx context.Context, owned identity.Owned, roles []iamtypes.Role) error {
	name, err := owned.ID(identity.InstanceProfile)
	if err != nil {
		return err
	}
	for _, r := range roles {
		_, err := p.api.RemoveRoleFromInstanceProfile(
			ctx,
			&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: r.RoleName},
		)
		if err != nil && !awserrors.Is(err, awserrors.NotFound) {
			return fmt.Errorf("remove role %s: %w", aws.ToString(r.RoleName), err)
		}
	}
	return nil
}

// remove deletes a profile of a class. A profile that no longer exists is no error.
func (p *Profiles) remove(ctx context.Context, name, classUID string) error {
	found, err := p.get(ctx, name)
	if err != nil || found == nil {
		return err
	}
	owned, err := p.proveOwnership(ctx, found, classUID)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := p.removeRoles(ctx, owned, found.Roles); err != nil {
		return err
	}
	return p.delete(ctx, owned)
}

func (p *Profiles) delete(ctx context.Context, owned identity.Owned) error {
	name, err := owned.ID(identity.InstanceProfile)
	if err != nil {
		return err
	}
	_, err = p.api.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if err != nil && !awserrors.Is(err, awserrors.NotFound) {
		return fmt.Errorf("delete instance profile %s: %w", name, err)
	}
	p.ensured.Delete(name)
	return nil
}

// DeleteAll deletes every profile that was created for a node class. Profiles of users have other paths and stay.
func (p *Profiles) DeleteAll(ctx context.Context, uid string) error {
	if uid == "" {
		return errors.New("delete instance profiles of a node class without UID")
	}
	all, err := p.list(ctx, p.path(uid))
	if err != nil {
		return err
	}
	var errs []error
	for _, profile := range all {
		errs = append(errs, p.remove(ctx, aws.ToString(profile.InstanceProfileName), uid))
	}
	return errors.Join(errs...)
}
