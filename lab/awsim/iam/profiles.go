package iam

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/wire"
)

const longestProfileName = 128

type profileName struct {
	InstanceProfileName string `query:"InstanceProfileName,required"`
}

type profileOutput struct {
	InstanceProfile xmlProfile
}

// find returns the named profile. The caller holds the lock.
func (a *Account) find(name string) (*profile, error) {
	if err := checkName("instanceProfileName", name, longestProfileName); err != nil {
		return nil, err
	}
	p, ok := a.profiles[name]
	if !ok {
		return nil, noProfile(name)
	}
	return p, nil
}

func (a *Account) getInstanceProfile(_ *wire.Request, in *profileName) (*profileOutput, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return &profileOutput{profileXML(a.profile(p))}, nil
}

type createProfileInput struct {
	profileName
	Path string   `query:"Path"`
	Tags []xmlTag `query:"Tags"`
}

func (a *Account) createInstanceProfile(r *wire.Request, in *createProfileInput) (*profileOutput, error) {
	name, tags := in.InstanceProfileName, tagsOf(in.Tags)
	if err := cmp.Or(checkName("instanceProfileName", name, longestProfileName), checkPath(in.Path), checkTags(tags, nil)); err != nil {
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

func (a *Account) deleteInstanceProfile(r *wire.Request, in *profileName) (*none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if p.role != "" {
		return nil, deleteConflict("remove roles from instance profile")
	}
	delete(a.profiles, p.Name)
	r.Touch(p.ARN)
	return nil, nil
}

type profileRole struct {
	profileName
	RoleName string `query:"RoleName,required"`
}

func (a *Account) addRoleToInstanceProfile(r *wire.Request, in *profileRole) (*none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	role, err := a.findRole(in.RoleName)
	if err != nil {
		return nil, err
	}
	if p.role != "" {
		return nil, limitExceeded("InstanceSessionsPerInstanceProfile", 1)
	}
	p.role = role.Name
	r.Touch(p.ARN)
	return nil, nil
}

func (a *Account) removeRoleFromInstanceProfile(r *wire.Request, in *profileRole) (*none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if err := checkName("roleName", in.RoleName, longestRoleName); err != nil {
		return nil, err
	}
	if p.role != in.RoleName {
		return nil, noRole(in.RoleName)
	}
	p.role = ""
	r.Touch(p.ARN)
	return nil, nil
}

type tagProfileInput struct {
	profileName
	Tags []xmlTag `query:"Tags,required"`
}

func (a *Account) tagInstanceProfile(r *wire.Request, in *tagProfileInput) (*none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	tags := tagsOf(in.Tags)
	if err := checkTags(tags, p.Tags); err != nil {
		return nil, err
	}
	p.Tags = mergeTags(p.Tags, tags)
	r.Touch(p.ARN)
	return nil, nil
}

type untagProfileInput struct {
	profileName
	TagKeys []string `query:"TagKeys,required"`
}

func (a *Account) untagInstanceProfile(r *wire.Request, in *untagProfileInput) (*none, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	for _, key := range in.TagKeys {
		if at := findTag(p.Tags, key); at >= 0 {
			p.Tags = slices.Delete(p.Tags, at, at+1)
		}
	}
	r.Touch(p.ARN)
	return nil, nil
}

type listProfileTagsInput struct {
	profileName
	paging
}

type tagsOutput struct {
	Tags []xmlTag `xml:"Tags>member"`
	truncation
}

func (a *Account) listInstanceProfileTags(_ *wire.Request, in *listProfileTagsInput) (*tagsOutput, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, err := a.find(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	items := map[string]xmlTag{}
	for _, t := range p.Tags {
		items[t.Key] = xmlTag(t)
	}
	tags, more, err := paged(in.paging, items)
	if err != nil {
		return nil, err
	}
	return &tagsOutput{tags, more}, nil
}

type listProfilesInput struct {
	PathPrefix string `query:"PathPrefix"`
	paging
}

type profilesOutput struct {
	InstanceProfiles []xmlProfile `xml:"InstanceProfiles>member"`
	truncation
}

func (a *Account) listInstanceProfiles(_ *wire.Request, in *listProfilesInput) (*profilesOutput, error) {
	prefix, err := pathPrefix(in.PathPrefix)
	if err != nil {
		return nil, err
	}
	return a.selectProfiles(in.paging, func(p *profile) bool { return strings.HasPrefix(p.Path, prefix) })
}

type listProfilesForRoleInput struct {
	RoleName string `query:"RoleName,required"`
	paging
}

func (a *Account) listInstanceProfilesForRole(_ *wire.Request, in *listProfilesForRoleInput) (*profilesOutput, error) {
	if err := a.checkRole(in.RoleName); err != nil {
		return nil, err
	}
	return a.selectProfiles(in.paging, func(p *profile) bool { return p.role == in.RoleName })
}

// selectProfiles lists the profiles that suit, without their tags.
func (a *Account) selectProfiles(at paging, suits func(*profile) bool) (*profilesOutput, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
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
