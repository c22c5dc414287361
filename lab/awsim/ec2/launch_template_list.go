package ec2

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type describeTemplatesInput struct {
	listInput
	IDs            []string `query:"LaunchTemplateId"`
	Names          []string `query:"LaunchTemplateName"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeTemplatesOutput struct {
	Templates []templateInfo `xml:"launchTemplates>item"`
	Next      *string        `xml:"nextToken"`
}

func (e *EC2) describeLaunchTemplates(_ *protocol.Request, in *describeTemplatesInput) (*describeTemplatesOutput, error) {
	if len(in.IDs) > 0 && len(in.Names) > 0 {
		return nil, combination("Launch template IDs and launch template names cannot both be specified")
	}
	all, err := e.wantedTemplates(in)
	if err != nil {
		return nil, err
	}
	n := resourceKind[*template]{
		id: func(t *template) string { return t.id }, tags: func(t *template) map[string]string { return t.tags },
		minResults: 1, maxResults: 200,
		properties: properties[*template]{
			"create-time":          one(func(t *template) string { return stamp(t.created) }),
			"launch-template-name": one(func(t *template) string { return t.name }),
		},
	}
	p, err := n.list(in.listInput, nil, all)
	if err != nil {
		return nil, err
	}
	out := &describeTemplatesOutput{Next: p.next}
	for _, t := range p.items {
		out.Templates = append(out.Templates, showTemplate(t))
	}
	return out, nil
}

// wantedTemplates returns the templates that a call names, each of which must exist, or all.
func (e *EC2) wantedTemplates(in *describeTemplatesInput) ([]*template, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	var list []*template
	for _, id := range in.IDs {
		t, err := e.templates.find(templateRef{ID: id})
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	for _, name := range in.Names {
		t := e.templates.byName[name]
		if !e.templates.known(t) {
			return nil, protocol.Errorf(
				"InvalidLaunchTemplateName.NotFoundException",
				"At least one of the launch templates specified in the request does not exist.",
			)
		}
		list = append(list, t)
	}
	if len(in.IDs)+len(in.Names) == 0 {
		for _, t := range e.templates.byID {
			if e.templates.known(t) {
				list = append(list, t)
			}
		}
	}
	slices.SortFunc(list, func(a, b *template) int { return strings.Compare(a.id, b.id) })
	return slices.Compact(list), nil
}

type describeVersionsInput struct {
	listInput
	templateRef
	Versions       []string `query:"LaunchTemplateVersion"`
	Min            string   `query:"MinVersion"`
	Max            string   `query:"MaxVersion"`
	ResolveAlias   bool     `query:"ResolveAlias"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeVersionsOutput struct {
	Versions []versionInfo `xml:"launchTemplateVersionSet>item"`
	Next     *string       `xml:"nextToken"`
}

func (e *EC2) describeLaunchTemplateVersions(_ *protocol.Request, in *describeVersionsInput) (*describeVersionsOutput, error) {
	if err := noAliases(in.ResolveAlias); err != nil {
		return nil, err
	}
	all, err := e.wantedVersions(in)
	if err != nil {
		return nil, err
	}
	n := resourceKind[versionInfo]{
		// Newest first, as the API lists them, also when templates are mixed.
		id:         func(v versionInfo) string { return v.TemplateID + " " + strconv.Itoa(1e9-v.Number) },
		minResults: 1, maxResults: 200,
		properties: properties[versionInfo]{
			"create-time":        one(func(v versionInfo) string { return v.Created }),
			"image-id":           one(func(v versionInfo) string { return v.Data.ImageID }),
			"instance-type":      one(func(v versionInfo) string { return v.Data.InstanceType }),
			"is-default-version": flag(func(v versionInfo) bool { return v.Default }),
			"iam-instance-profile": one(func(v versionInfo) string {
				if v.Data.Profile == nil {
					return ""
				}
				return v.Data.Profile.ARN + v.Data.Profile.Name
			}),
		},
	}
	p, err := n.list(in.listInput, nil, all)
	if err != nil {
		return nil, err
	}
	return &describeVersionsOutput{Versions: p.items, Next: p.next}, nil
}

func (e *EC2) wantedVersions(in *describeVersionsInput) ([]versionInfo, error) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if in.templateRef == (templateRef{}) {
		return e.templates.aliasedVersions(in.Versions)
	}
	t, err := e.templates.find(in.templateRef)
	if err != nil {
		return nil, err
	}
	low, high := 1, t.latest
	for text, bound := range map[string]*int{in.Min: &low, in.Max: &high} {
		if text == "" {
			continue
		}
		if *bound, err = strconv.Atoi(text); err != nil {
			return nil, invalidValue("Invalid launch template version: %s", text)
		}
	}
	var list []versionInfo
	for _, name := range in.Versions {
		v, err := t.resolve(name)
		if err != nil {
			return nil, err
		}
		list = append(list, showVersion(t, v))
	}
	if len(in.Versions) == 0 {
		for _, v := range t.versions {
			if v.number >= low && v.number <= high {
				list = append(list, showVersion(t, v))
			}
		}
	}
	return list, nil
}

// aliasedVersions returns the latest or default versions of all templates, which is all that a call without a template
// may request.
func (lt *templates) aliasedVersions(names []string) ([]versionInfo, error) {
	var list []versionInfo
	if len(names) == 0 {
		return nil, protocol.Errorf("MissingParameter", "Either the launch template ID or the launch template name must be specified")
	}
	for _, name := range names {
		if name != "$Latest" && name != "$Default" {
			return nil, invalidValue("Only $Latest and $Default are allowed when no launch template is specified")
		}
		for _, t := range lt.byID {
			if !lt.known(t) {
				continue
			}
			v, err := t.resolve(name)
			if err != nil {
				return nil, err
			}
			list = append(list, showVersion(t, v))
		}
	}
	return list, nil
}
