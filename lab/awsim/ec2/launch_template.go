package ec2

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// templates are the launch templates.
type templates struct {
	now    func() time.Time
	byID   map[string]*template
	byName map[string]*template
}

func newTemplates(now func() time.Time) templates {
	return templates{now: now, byID: map[string]*template{}, byName: map[string]*template{}}
}

// template is a launch template; it is never modified once others can see it.
type template struct {
	id             string
	name           string
	created        time.Time
	visible        time.Time // when others than CreateLaunchTemplate begin to know it
	createdBy      string
	defaultVersion int
	latest         int // the highest number ever given
	versions       []*templateVersion
	tags           map[string]string
}

// templateVersion is one version of a launch template.
type templateVersion struct {
	number      int
	description string
	created     time.Time
	createdBy   string
	data        templateData
}

func (t *template) version(number int) *templateVersion {
	return find(t.versions, func(v *templateVersion) bool { return v.number == number })
}

// resolve returns the version that a request names: a number, $Latest, $Default, or nothing for the default.
func (t *template) resolve(name string) (*templateVersion, error) {
	number := t.defaultVersion
	switch name {
	case "", "$Default":
	case "$Latest":
		number = t.latest
	default:
		parsed, err := strconv.Atoi(name)
		if err != nil || parsed < 1 {
			return nil, invalidValue("Invalid launch template version: either '$Default', '$Latest', or a numeric version are allowed.")
		}
		number = parsed
	}
	if v := t.version(number); v != nil {
		return v, nil
	}
	return nil, protocol.Errorf("InvalidLaunchTemplateId.VersionNotFound",
		"Could not find launch template version %d for launch template with ID %s.", number, t.id)
}

// put replaces the record of a template. The lock must be held.
func (ts *templates) put(t *template) {
	ts.byID[t.id], ts.byName[t.name] = t, t
}

func (ts *templates) remove(t *template) {
	delete(ts.byID, t.id)
	delete(ts.byName, t.name)
}

// known reports whether there is such a template, as far as word of it has gone.
func (ts *templates) known(t *template) bool { return t != nil && !ts.now().Before(t.visible) }

// templateRef names a launch template by exactly one of its two names.
type templateRef struct {
	ID   string `query:"LaunchTemplateId"`
	Name string `query:"LaunchTemplateName"`
}

// find returns the template, or the error that EC2 has for each way in which a reference is wrong.
func (ts *templates) find(ref templateRef) (*template, error) {
	switch {
	case ref.ID != "" && ref.Name != "":
		return nil, combination("Launch template ID and launch template name cannot both be specified")
	case ref.ID == "" && ref.Name == "":
		return nil, protocol.Errorf("MissingParameter", "Either the launch template ID or the launch template name must be specified")
	case ref.ID != "":
		if !strings.HasPrefix(ref.ID, "lt-") || !hexadecimal.MatchString(ref.ID[len("lt-"):]) {
			return nil, protocol.Errorf("InvalidLaunchTemplateId.Malformed", "The specified launch template ID, %s, is malformed.", ref.ID)
		}
		if t := ts.byID[ref.ID]; ts.known(t) {
			return t, nil
		}
		return nil, protocol.Errorf(
			"InvalidLaunchTemplateId.NotFound",
			"The specified launch template, with template ID %s, does not exist.",
			ref.ID,
		)
	}
	if t := ts.byName[ref.Name]; ts.known(t) {
		return t, nil
	}
	return nil, protocol.Errorf("InvalidLaunchTemplateName.NotFoundException",
		"The specified launch template, with template name %s, does not exist.", ref.Name)
}

var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

type createTemplateInput struct {
	DryRun      bool               `query:"DryRun"`
	ClientToken string             `query:"ClientToken"`
	Name        string             `query:"LaunchTemplateName,required"`
	Description string             `query:"VersionDescription"`
	Data        *templateData      `query:"LaunchTemplateData,required"`
	Tags        []tagSpecification `query:"TagSpecification"`
	Operator    *unsupported       `query:"Operator,unsupported"`
}

type templateOutput struct {
	Template templateInfo `xml:"launchTemplate"`
}

type templateInfo struct {
	ID        string `xml:"launchTemplateId"`
	Name      string `xml:"launchTemplateName"`
	Created   string `xml:"createTime"`
	CreatedBy string `xml:"createdBy"`
	Default   int    `xml:"defaultVersionNumber"`
	Latest    int    `xml:"latestVersionNumber"`
	Tags      []tag  `xml:"tagSet>item"`
}

func showTemplate(t *template) templateInfo {
	return templateInfo{
		ID: t.id, Name: t.name, Created: stamp(t.created), CreatedBy: t.createdBy, Default: t.defaultVersion, Latest: t.latest,
		Tags: tagList(t.tags),
	}
}

// maxDescription is the length of a version's description in characters.
const maxDescription = 255

func (e *EC2) createLaunchTemplate(r *protocol.Request, in *createTemplateInput) (*templateOutput, error) {
	if !templateName.MatchString(in.Name) {
		return nil, protocol.Errorf(
			"InvalidLaunchTemplateName.MalformedException",
			"Launch template names must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.",
		)
	}
	if len(in.Description) > maxDescription {
		return nil, invalidValue("The version description exceeds %d characters", maxDescription)
	}
	if err := firstError(in.Data.check(), checkSpecifications(in.Tags, "launch-template")); err != nil {
		return nil, err
	}
	if err := r.Authorize(e.making(r.Action, "launch-template", tagsFor("launch-template", in.Tags))...); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	return once(e, r, in.ClientToken, func() (*templateOutput, error) {
		if e.templates.byName[in.Name] != nil {
			return nil, protocol.Errorf("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		t := &template{
			id: e.newID("lt"), name: in.Name, created: now, visible: now.Add(e.cfg.Timing.TemplateVisible), createdBy: r.Principal.ARN,
			defaultVersion: 1, latest: 1,
			versions: []*templateVersion{{number: 1, description: in.Description, created: now, createdBy: r.Principal.ARN, data: *in.Data}},
			tags:     tagsFor("launch-template", in.Tags),
		}
		e.templates.put(t)
		r.Touch(t.id)
		return &templateOutput{showTemplate(t)}, nil
	})
}

type createVersionInput struct {
	templateRef
	DryRun        bool          `query:"DryRun"`
	ClientToken   string        `query:"ClientToken"`
	Description   string        `query:"VersionDescription"`
	Data          *templateData `query:"LaunchTemplateData,required"`
	ResolveAlias  bool          `query:"ResolveAlias"`
	SourceVersion *unsupported  `query:"SourceVersion,unsupported"`
}

type createVersionOutput struct {
	Version versionInfo `xml:"launchTemplateVersion"`
}

type versionInfo struct {
	TemplateID   string       `xml:"launchTemplateId"`
	TemplateName string       `xml:"launchTemplateName"`
	Number       int          `xml:"versionNumber"`
	Description  string       `xml:"versionDescription,omitempty"`
	Created      string       `xml:"createTime"`
	CreatedBy    string       `xml:"createdBy"`
	Default      bool         `xml:"defaultVersion"`
	Data         templateData `xml:"launchTemplateData"`
}

func showVersion(t *template, v *templateVersion) versionInfo {
	return versionInfo{
		TemplateID: t.id, TemplateName: t.name, Number: v.number, Description: v.description, Created: stamp(v.created),
		CreatedBy: v.createdBy, Default: v.number == t.defaultVersion, Data: v.data,
	}
}

// noAliases rejects ResolveAlias, which resolves images by their SSM parameter.
func noAliases(resolve bool) error {
	if resolve {
		return protocol.Errorf("UnsupportedOperation", "The simulator does not resolve aliases of images")
	}
	return nil
}

func (e *EC2) createLaunchTemplateVersion(r *protocol.Request, in *createVersionInput) (*createVersionOutput, error) {
	if err := noAliases(in.ResolveAlias); err != nil {
		return nil, err
	}
	if err := in.Data.check(); err != nil {
		return nil, err
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	old, err := e.templates.find(in.templateRef)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.onTemplate(old)); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*createVersionOutput, error) {
		t := *old
		t.latest++
		v := &templateVersion{number: t.latest, description: in.Description, created: now, createdBy: r.Principal.ARN, data: *in.Data}
		t.versions = append(slices.Clone(old.versions), v)
		e.templates.put(&t)
		r.Touch(t.id)
		return &createVersionOutput{showVersion(&t, v)}, nil
	})
}

type modifyTemplateInput struct {
	templateRef
	DryRun      bool   `query:"DryRun"`
	ClientToken string `query:"ClientToken"`
	Default     string `query:"SetDefaultVersion,required"`
}

func (e *EC2) modifyLaunchTemplate(r *protocol.Request, in *modifyTemplateInput) (*templateOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, err := e.templates.find(in.templateRef)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.onTemplate(old)); err != nil {
		return nil, err
	}
	v, err := old.resolve(in.Default)
	if err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	t := *old
	t.defaultVersion = v.number
	e.templates.put(&t)
	r.Touch(t.id)
	return &templateOutput{showTemplate(&t)}, nil
}

type deleteTemplateInput struct {
	templateRef
	DryRun bool `query:"DryRun"`
}

func (e *EC2) deleteLaunchTemplate(r *protocol.Request, in *deleteTemplateInput) (*templateOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, err := e.templates.find(in.templateRef)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.onTemplate(t)); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	e.templates.remove(t)
	r.Touch(t.id)
	return &templateOutput{showTemplate(t)}, nil
}

type deleteVersionsInput struct {
	templateRef
	DryRun   bool     `query:"DryRun"`
	Versions []string `query:"LaunchTemplateVersion,required"`
}

type deleteVersionsOutput struct {
	Deleted []deletedVersion `xml:"successfullyDeletedLaunchTemplateVersionSet>item"`
	Kept    []deletedVersion `xml:"unsuccessfullyDeletedLaunchTemplateVersionSet>item"`
}

type deletedVersion struct {
	TemplateID   string        `xml:"launchTemplateId"`
	TemplateName string        `xml:"launchTemplateName"`
	Number       int           `xml:"versionNumber"`
	Error        *versionError `xml:"responseError"`
}

type versionError struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

func (e *EC2) deleteLaunchTemplateVersions(r *protocol.Request, in *deleteVersionsInput) (*deleteVersionsOutput, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	old, err := e.templates.find(in.templateRef)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.onTemplate(old)); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	t, out := *old, &deleteVersionsOutput{}
	t.versions = slices.Clone(old.versions)
	for _, name := range in.Versions {
		number, err := strconv.Atoi(name)
		if err != nil {
			return nil, invalidValue("Invalid launch template version: %s", name)
		}
		d := deletedVersion{TemplateID: t.id, TemplateName: t.name, Number: number}
		switch {
		case t.version(number) == nil:
			d.Error = &versionError{"launchTemplateVersionDoesNotExist", "The specified launch template version does not exist."}
		case number == t.defaultVersion:
			d.Error = &versionError{"unexpectedError", "The default version of a launch template cannot be deleted."}
		}
		if d.Error != nil {
			out.Kept = append(out.Kept, d)
			continue
		}
		t.versions = slices.DeleteFunc(t.versions, func(v *templateVersion) bool { return v.number == number })
		out.Deleted = append(out.Deleted, d)
	}
	// $Latest is the highest version that is left.
	t.latest = t.versions[len(t.versions)-1].number
	e.templates.put(&t)
	r.Touch(t.id)
	return out, nil
}
