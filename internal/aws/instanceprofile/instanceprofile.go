// Package instanceprofile keeps the IAM instance profiles through which instances of a node class get its role.
//
// A profile's name is a function of the cluster's identity, the node class and the role. So a controller
// that is killed between creating a profile and writing its name down finds it again, and two clusters of
// one name never share one.
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
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/fault"
	"github.com/dovetail-k8s/dovetail/internal/aws/identity"
	"github.com/dovetail-k8s/dovetail/internal/aws/memo"
)

// API is what Profiles calls of IAM.
type API interface {
	iam.ListInstanceProfilesAPIClient
	GetInstanceProfile(ctx context.Context, in *iam.GetInstanceProfileInput, optFns ...func(*iam.Options)) (*iam.GetInstanceProfileOutput, error)
	CreateInstanceProfile(ctx context.Context, in *iam.CreateInstanceProfileInput, optFns ...func(*iam.Options)) (*iam.CreateInstanceProfileOutput, error)
	DeleteInstanceProfile(ctx context.Context, in *iam.DeleteInstanceProfileInput, optFns ...func(*iam.Options)) (*iam.DeleteInstanceProfileOutput, error)
	AddRoleToInstanceProfile(ctx context.Context, in *iam.AddRoleToInstanceProfileInput, optFns ...func(*iam.Options)) (*iam.AddRoleToInstanceProfileOutput, error)
	RemoveRoleFromInstanceProfile(ctx context.Context, in *iam.RemoveRoleFromInstanceProfileInput, optFns ...func(*iam.Options)) (*iam.RemoveRoleFromInstanceProfileOutput, error)
}

// NodeClass is what a profile is made for.
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
	// ensuredFor is how long a profile is believed to be as it was left.
	ensuredFor = 15 * time.Minute
	// roleMissingFor is how long IAM is not asked again about a role that does not exist.
	roleMissingFor = time.Minute
)

// RoleNotFoundError means that the role of a node class does not exist.
type RoleNotFoundError struct{ Role string }

func (e *RoleNotFoundError) Error() string { return fmt.Sprintf("role %q does not exist", e.Role) }

// Profiles are the instance profiles of one cluster.
type Profiles struct {
	api      API
	identity identity.Identity
	ensured  *memo.Memo[string, string] // profile -> role
	missing  *memo.Memo[string, struct{}]
}

// New returns Profiles that know of none yet.
func New(api API, id identity.Identity, now func() time.Time) *Profiles {
	return &Profiles{
		api:      api,
		identity: id,
		ensured:  memo.New[string, string](ensuredFor, now),
		missing:  memo.New[string, struct{}](roleMissingFor, now),
	}
}

// Name is the name of the profile for a class with its role.
func (p *Profiles) Name(class NodeClass) string {
	h := sha256.New()
	for _, part := range []string{p.identity.ClusterUID, p.identity.Region, class.UID, roleName(class.Role)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%s_%d", p.identity.ClusterName, binary.BigEndian.Uint64(h.Sum(nil)))
}

// path is under which all profiles of a class are.
func (p *Profiles) path(uid string) string {
	return fmt.Sprintf("/karpenter/%s/%s/%s/", p.identity.Region, p.identity.ClusterName, uid)
}

// roleName is the last part of a role's path: profiles know roles by name only.
func roleName(role string) string { return role[strings.LastIndexByte(role, '/')+1:] }

// Ensure returns the name of a profile that exists and holds the role of the class. A profile that the
// class uses already is kept if it does. The error is a *RoleNotFoundError when there is no such role.
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
	if _, absent := p.missing.Get(role); absent {
		return "", &RoleNotFoundError{Role: role}
	}
	if len(names) > 1 {
		if found, err := p.get(ctx, class.Current); err != nil {
			return "", err
		} else if found != nil && !p.foreign(found) && holds(found, role) {
			p.ensured.Put(class.Current, role)
			return class.Current, nil
		}
	}
	name := p.Name(class)
	if err := p.make(ctx, name, role, class); err != nil {
		return "", fmt.Errorf("instance profile %s for node class %s: %w", name, class.Name, err)
	}
	p.ensured.Put(name, role)
	return name, nil
}

// make brings the profile of that name into being, step by step; each step finds what earlier ones left.
func (p *Profiles) make(ctx context.Context, name, role string, class NodeClass) error {
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
		if err != nil && !fault.Is(err, fault.AlreadyExists) {
			return fmt.Errorf("create: %w", err)
		}
		found = &iamtypes.InstanceProfile{}
	}
	if holds(found, role) {
		return nil
	}
	if err := p.removeRoles(ctx, name, found.Roles); err != nil {
		return err
	}
	_, err = p.api.AddRoleToInstanceProfile(ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: aws.String(role)})
	if fault.Is(err, fault.RoleNotFound) {
		p.missing.Put(role, struct{}{})
		return errors.Join(&RoleNotFoundError{Role: role}, p.remove(ctx, name))
	}
	if err != nil {
		return fmt.Errorf("add role %s: %w", role, err)
	}
	return nil
}

func (p *Profiles) tags(class NodeClass) []iamtypes.Tag {
	tags := p.identity.Tags(class.Name, class.Tags)
	tags[awsv1.TagRegion] = p.identity.Region
	out := make([]iamtypes.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, iamtypes.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

// get returns nil for a profile that does not exist.
func (p *Profiles) get(ctx context.Context, name string) (*iamtypes.InstanceProfile, error) {
	out, err := p.api.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get instance profile %s: %w", name, err)
	}
	return out.InstanceProfile, nil
}

func holds(profile *iamtypes.InstanceProfile, role string) bool {
	return len(profile.Roles) == 1 && aws.ToString(profile.Roles[0].RoleName) == role
}

// foreign reports whether another cluster of the same name made the profile.
func (p *Profiles) foreign(profile *iamtypes.InstanceProfile) bool {
	for _, tag := range profile.Tags {
		if aws.ToString(tag.Key) == awsv1.TagClusterUID {
			return aws.ToString(tag.Value) != p.identity.ClusterUID
		}
	}
	return false
}

func (p *Profiles) removeRoles(ctx context.Context, name string, roles []iamtypes.Role) error {
	for _, r := range roles {
		_, err := p.api.RemoveRoleFromInstanceProfile(ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: aws.String(name), RoleName: r.RoleName})
		if err != nil && !fault.Is(err, fault.NotFound) {
			return fmt.Errorf("remove role %s: %w", aws.ToString(r.RoleName), err)
		}
	}
	return nil
}

// remove deletes a profile; one that is gone is no error.
func (p *Profiles) remove(ctx context.Context, name string) error {
	found, err := p.get(ctx, name)
	if err != nil || found == nil {
		return err
	}
	if err := p.removeRoles(ctx, name, found.Roles); err != nil {
		return err
	}
	_, err = p.api.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: aws.String(name)})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return fmt.Errorf("delete instance profile %s: %w", name, err)
	}
	p.ensured.Drop(name)
	return nil
}

// DeleteAll deletes every profile that was made for a node class. Profiles of users are elsewhere and stay.
func (p *Profiles) DeleteAll(ctx context.Context, uid string) error {
	if uid == "" {
		return errors.New("delete instance profiles of a node class without UID")
	}
	pages := iam.NewListInstanceProfilesPaginator(p.api, &iam.ListInstanceProfilesInput{PathPrefix: aws.String(p.path(uid))})
	var names []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list instance profiles: %w", err)
		}
		for _, profile := range page.InstanceProfiles {
			names = append(names, aws.ToString(profile.InstanceProfileName))
		}
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, p.remove(ctx, name))
	}
	return errors.Join(errs...)
}
