package iam

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

const longestProfileName = 128

type profileName struct {
	InstanceProfileName string `query:"InstanceProfileName,required"`
}

func (in *profileName) profile() string { return in.InstanceProfileName }

func (in *profileName) check() error {
	return checkName("instanceProfileName", in.InstanceProfileName, longestProfileName)
}

// onProfile checks a request that is about an instance profile and runs f on it, under the lock.
func onProfile[Out any](a *Account, in interface {
	profile() string
	check() error
}, f func(*profile) (*Out, error),
) (*Out, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p, ok := a.profiles[in.profile()]
	if !ok {
		return nil, noProfile(in.profile())
	}
	return f(p)
}

type profileOutput struct {
	InstanceProfile xmlProfile
}

func (a *Account) getInstanceProfile(_ *protocol.Request, in *profileName) (*profileOutput, error) {
	return onProfile(a, in, func(p *profile) (*profileOutput, error) {
		return &profileOutput{profileXML(a.profile(p))}, nil
	})
}

type createProfileInput struct {
	profileName
	Path string   `query:"Path"`
	Tags []xmlTag `query:"Tags"`
}

func (a *Account) createInstanceProfile(r *protocol.Request, in *createProfileInput) (*profileOutput, error) {
	name, tags := in.InstanceProfileName, tagsOf(in.Tags)
	if err := cmp.Or(in.check(), checkPath(in.Path), checkTags(tags, nil)); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if taken(a.profiles, name) {
		return nil, alreadyExists("Instance Profile %s already exists.", name)
	}
	if len(a.profiles) >= maxInstanceProfiles {
		return nil, limitExceeded("InstanceProfilesPerAccount", maxInstanceProfiles)
	}
	path := cmp.Or(in.Path, "/")
	p := &profile{InstanceProfile: InstanceProfile{
		Name: name, Path: path, ID: a.newID("AIPA"), ARN: a.arn("instance-profile", path, name), Created: a.now(), Tags: tags,
	}}
	a.profiles[name] = p
	r.Touch(p.ARN)
	return &profileOutput{profileXML(a.profile(p))}, nil
}

func (a *Account) deleteInstanceProfile(r *protocol.Request, in *profileName) (*none, error) {
	return onProfile(a, in, func(p *profile) (*none, error) {
		if p.role != "" {
			return nil, deleteConflict("remove roles from instance profile")
		}
		delete(a.profiles, p.Name)
		r.Touch(p.ARN)
		return nil, nil
	})
}

type profileRole struct {
	profileName
	RoleName string `query:"RoleName,required"`
}

func (in *profileRole) check() error {
	return cmp.Or(in.profileName.check(), checkName("roleName", in.RoleName, longestRoleName))
}

func (a *Account) addRoleToInstanceProfile(r *protocol.Request, in *profileRole) (*none, error) {
	return onProfile(a, in, func(p *profile) (*none, error) {
		role, ok := a.roles[in.RoleName]
		if !ok {
			return nil, noRole(in.RoleName)
		}
		if p.role != "" {
			return nil, limitExceeded("InstanceSessionsPerInstanceProfile", 1)
		}
		p.role, p.RoleChanged = role.Name, a.cfg.Now()
		r.Touch(p.ARN)
		return nil, nil
	})
}

func (a *Account) removeRoleFromInstanceProfile(r *protocol.Request, in *profileRole) (*none, error) {
	return onProfile(a, in, func(p *profile) (*none, error) {
		if p.role != in.RoleName {
			return nil, noRole(in.RoleName)
		}
		p.role, p.RoleChanged = "", a.cfg.Now()
		r.Touch(p.ARN)
		return nil, nil
	})
}

type tagProfileInput struct {
	profileName
	Tags []xmlTag `query:"Tags,required"`
}

func (a *Account) tagInstanceProfile(r *protocol.Request, in *tagProfileInput) (*none, error) {
	return onProfile(a, in, func(p *profile) (*none, error) {
		tags := tagsOf(in.Tags)
		if err := checkTags(tags, p.Tags); err != nil {
			return nil, err
		}
		p.Tags = mergeTags(p.Tags, tags)
		r.Touch(p.ARN)
		return nil, nil
	})
}

type untagProfileInput struct {
	profileName
	TagKeys []string `query:"TagKeys,required"`
}

func (a *Account) untagInstanceProfile(r *protocol.Request, in *untagProfileInput) (*none, error) {
	return onProfile(a, in, func(p *profile) (*none, error) {
		for _, key := range in.TagKeys {
			if at := findTag(p.Tags, key); at >= 0 {
				p.Tags = slices.Delete(p.Tags, at, at+1)
			}
		}
		r.Touch(p.ARN)
		return nil, nil
	})
}

type listProfileTagsInput struct {
	profileName
	paging
}

type tagsOutput struct {
	Tags []xmlTag `xml:"Tags>member"`
	truncation
}

func (a *Account) listInstanceProfileTags(_ *protocol.Request, in *listProfileTagsInput) (*tagsOutput, error) {
	return onProfile(a, in, func(p *profile) (*tagsOutput, error) {
		items := map[string]xmlTag{}
		for _, t := range p.Tags {
			items[t.Key] = xmlTag(t)
		}
		tags, more, err := paged(in.paging, items)
		if err != nil {
			return nil, err
		}
		return &tagsOutput{tags, more}, nil
	})
}

type listProfilesInput struct {
	PathPrefix string `query:"PathPrefix"`
	paging
}

type profilesOutput struct {
	InstanceProfiles []xmlProfile `xml:"InstanceProfiles>member"`
	truncation
}

func (a *Account) listInstanceProfiles(_ *protocol.Request, in *listProfilesInput) (*profilesOutput, error) {
	if err := checkPathPrefix(in.PathPrefix); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.selectProfiles(in.paging, func(p *profile) bool { return strings.HasPrefix(p.Path, in.PathPrefix) })
}

type listProfilesForRoleInput struct {
	roleName
	paging
}

func (a *Account) listInstanceProfilesForRole(_ *protocol.Request, in *listProfilesForRoleInput) (*profilesOutput, error) {
	return onRole(a, in, func(role *Role) (*profilesOutput, error) {
		return a.selectProfiles(in.paging, func(p *profile) bool { return p.role == role.Name })
	})
}

// selectProfiles lists the profiles that suit, without their tags. The caller holds the lock.
func (a *Account) selectProfiles(at paging, suits func(*profile) bool) (*profilesOutput, error) {
	items := map[string]xmlProfile{}
	for name, p := range a.profiles {
		if suits(p) {
			x := profileXML(a.profile(p))
			x.Tags = nil
			items[name] = x
		}
	}
	profiles, more, err := paged(at, items)
	if err != nil {
		return nil, err
	}
	return &profilesOutput{profiles, more}, nil
}
