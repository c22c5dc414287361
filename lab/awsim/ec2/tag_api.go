package ec2

import (
	"maps"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type changeTagsInput struct {
	DryRun    bool        `query:"DryRun"`
	Resources []string    `query:"ResourceId,required"`
	Tags      []changeTag `query:"Tag"`
}

// changeTag reports a value that is absent from an empty one: DeleteTags deletes whatever the value is, or only if it is
// empty.
type changeTag struct {
	Key   string  `query:"Key,required"`
	Value *string `query:"Value"`
}

// maxTagged is how many resources one call may tag.
const maxTagged = 1000

func (e *EC2) createTags(r *protocol.Request, in *changeTagsInput) (*struct{}, error) {
	if len(in.Tags) == 0 {
		return nil, missing("Tag")
	}
	var tags []tag
	for _, t := range in.Tags {
		added := tag{Key: t.Key}
		if t.Value != nil {
			added.Value = *t.Value
		}
		tags = append(tags, added)
	}
	if err := checkTags(tags); err != nil {
		return nil, err
	}
	return nil, e.changeTags(r, in, func(old map[string]string) map[string]string {
		changed := maps.Clone(old)
		if changed == nil {
			changed = map[string]string{}
		}
		for _, t := range tags {
			changed[t.Key] = t.Value
		}
		return changed
	})
}

func (e *EC2) deleteTags(r *protocol.Request, in *changeTagsInput) (*struct{}, error) {
	for _, t := range in.Tags {
		if strings.HasPrefix(strings.ToLower(t.Key), "aws:") {
			return nil, invalidValue(
				"Value ( %s ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use",
				t.Key,
			)
		}
	}
	return nil, e.changeTags(r, in, func(old map[string]string) map[string]string {
		changed := maps.Clone(old)
		maps.DeleteFunc(changed, func(key, value string) bool {
			if strings.HasPrefix(key, "aws:") {
				return false
			}
			return len(in.Tags) == 0 || slices.ContainsFunc(in.Tags, func(t changeTag) bool {
				return t.Key == key && (t.Value == nil || *t.Value == value)
			})
		})
		return changed
	})
}

// changeTags edits the tags of all resources, or of none when one does not exist or would have too many.
func (e *EC2) changeTags(r *protocol.Request, in *changeTagsInput, edit func(map[string]string) map[string]string) error {
	if len(in.Resources) > maxTagged {
		return invalidValue("The number of resources exceeds %d", maxTagged)
	}
	e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	var apply []func()
	for _, id := range in.Resources {
		t, err := e.tagged(id)
		if err != nil {
			return err
		}
		if err := r.Authorize(e.retagging(t, in.Tags)); err != nil {
			return err
		}
		changed := edit(t.tags)
		if ownTags(changed) > maxTags {
			return tooManyTags()
		}
		apply = append(apply, func() { t.replace(changed) })
	}
	if in.DryRun {
		return dryRun()
	}
	for _, f := range apply {
		f()
	}
	r.Touch(in.Resources...)
	return nil
}

// ownTags counts the tags that are not AWS's.
func ownTags(tags map[string]string) int {
	n := 0
	for key := range tags {
		if !strings.HasPrefix(key, "aws:") {
			n++
		}
	}
	return n
}

// tagged is a resource seen as a bearer of tags.
type tagged struct {
	id, kind string
	tags     map[string]string
	replace  func(map[string]string)
}

// tagged finds a resource by its ID. The lock must be held.
func (e *EC2) tagged(id string) (tagged, error) {
	prefix, _, _ := strings.Cut(id, "-")
	kinds := map[string]struct {
		rules idRules
		find  func(string) (tagged, bool)
	}{
		"i":   {instanceIDs(), e.taggedInstance},
		"vol": {volumeIDs(), e.taggedVolume},
		"eni": {interfaceIDs(), e.fleet.taggedInterface},
		"ami": {imageIDs(), e.taggedImage},
		"cr": {
			reservationIDs(),
			taggedIn(&e.reservations, "capacity-reservation", func(r *reservation) (*string, *map[string]string) { return &r.ID, &r.Tags }),
		},
		"pg":  {placementGroupIDs(), e.taggedGroup},
		"vpc": {vpcIDs(), taggedIn(&e.network.vpcs, "vpc", func(v *VPC) (*string, *map[string]string) { return &v.ID, &v.Tags })},
		"subnet": {
			subnetIDs(),
			taggedIn(&e.network.subnets, "subnet", func(s *Subnet) (*string, *map[string]string) { return &s.ID, &s.Tags }),
		},
		"sg": {
			groupIDs(),
			taggedIn(&e.network.groups, "security-group", func(g *SecurityGroup) (*string, *map[string]string) { return &g.ID, &g.Tags }),
		},
		"rtb": {
			tableIDs(),
			taggedIn(&e.network.tables, "route-table", func(t *RouteTable) (*string, *map[string]string) { return &t.ID, &t.Tags }),
		},
	}
	if prefix == "lt" {
		t, err := e.templates.find(templateRef{ID: id})
		if err != nil {
			return tagged{}, err
		}
		return e.templates.taggedTemplate(t), nil
	}
	kind, known := kinds[prefix]
	if !known {
		return tagged{}, protocol.Errorf("InvalidID", "The ID '%s' is not valid", id)
	}
	if err := kind.rules.check(id); err != nil {
		return tagged{}, err
	}
	t, ok := kind.find(id)
	if !ok {
		return tagged{}, kind.rules.absent(id)
	}
	return t, nil
}

func (e *EC2) taggedInstance(id string) (tagged, bool) {
	r := e.fleet.known(id, e.cfg.Clock.Now())
	if r == nil {
		return tagged{}, false
	}
	return tagged{id, "instance", r.Tags, func(tags map[string]string) {
		e.fleet.put(r, func(r *instanceRecord) { r.Tags = tags })
	}}, true
}

func (e *EC2) taggedVolume(id string) (tagged, bool) {
	v := e.volumes[id]
	if v == nil {
		return tagged{}, false
	}
	return tagged{id, "volume", v.tags, func(tags map[string]string) {
		changed := *v
		changed.tags = tags
		e.volumes[id] = &changed
	}}, true
}

func (in *instances) taggedInterface(id string) (tagged, bool) {
	for _, r := range in.list() {
		at := slices.IndexFunc(r.nics, func(n nic) bool { return n.id == id })
		if at < 0 || r.State == Terminated {
			continue
		}
		return tagged{id, "network-interface", r.nics[at].tags, func(tags map[string]string) {
			in.put(r, func(r *instanceRecord) {
				r.nics = slices.Clone(r.nics)
				r.nics[at].tags = tags
			})
		}}, true
	}
	return tagged{}, false
}

func (e *EC2) taggedImage(id string) (tagged, bool) {
	a := e.images[id]
	if a == nil {
		return tagged{}, false
	}
	return tagged{id, "image", a.tags, func(tags map[string]string) {
		changed := *a
		changed.tags = tags
		e.images[id] = &changed
	}}, true
}

func (e *EC2) taggedGroup(id string) (tagged, bool) {
	g := e.placementGroup(e.cfg.Clock.Now(), id)
	if g == nil {
		return tagged{}, false
	}
	return tagged{id, "placement-group", g.Tags, func(tags map[string]string) {
		changed := *g
		changed.Tags = tags
		e.groups[slices.Index(e.groups, g)] = &changed
	}}, true
}

func (lt *templates) taggedTemplate(t *template) tagged {
	return tagged{t.id, "launch-template", t.tags, func(tags map[string]string) {
		changed := *t
		changed.tags = tags
		lt.put(&changed)
	}}
}

// taggedIn finds things that are kept in a list of pointers to values.
func taggedIn[T any](list *[]*T, kind string, fields func(*T) (*string, *map[string]string)) func(string) (tagged, bool) {
	return func(id string) (tagged, bool) {
		for i, t := range *list {
			tid, tags := fields(t)
			if *tid != id {
				continue
			}
			return tagged{id, kind, *tags, func(tags map[string]string) {
				changed := *t
				_, at := fields(&changed)
				*at = tags
				(*list)[i] = &changed
			}}, true
		}
		return tagged{}, false
	}
}

type describeTagsOutput struct {
	Tags []tagInfo `xml:"tagSet>item"`
	Next *string   `xml:"nextToken"`
}

type tagInfo struct {
	Resource string `xml:"resourceId"`
	Kind     string `xml:"resourceType"`
	Key      string `xml:"key"`
	Value    string `xml:"value"`
}

func (e *EC2) describeTags(_ *protocol.Request, in *listInput) (*describeTagsOutput, error) {
	e.applyDueTransitions()
	n := resourceKind[tagInfo]{
		id: func(t tagInfo) string { return t.Resource + " " + t.Key }, minResults: 5, maxResults: 1000,
		properties: properties[tagInfo]{
			"key":           one(func(t tagInfo) string { return t.Key }),
			"resource-id":   one(func(t tagInfo) string { return t.Resource }),
			"resource-type": one(func(t tagInfo) string { return t.Kind }),
			"value":         func(t tagInfo) []string { return []string{t.Value} },
		},
	}
	p, err := n.list(*in, nil, locked(e, e.allTags))
	if err != nil {
		return nil, err
	}
	return &describeTagsOutput{Tags: p.items, Next: p.next}, nil
}

func (e *EC2) allTags() []tagInfo {
	var all []tagInfo
	add := func(id, kind string, tags map[string]string) {
		for key, value := range tags {
			all = append(all, tagInfo{id, kind, key, value})
		}
	}
	for _, r := range e.fleet.list() {
		add(r.ID, "instance", r.Tags)
		if r.State == Terminated {
			continue
		}
		for _, n := range r.nics {
			add(n.id, "network-interface", n.tags)
		}
	}
	for _, v := range e.volumes {
		add(v.id, "volume", v.tags)
	}
	for _, a := range e.images {
		add(a.ID, "image", a.tags)
	}
	for _, t := range e.templates.byID {
		add(t.id, "launch-template", t.tags)
	}
	for _, r := range e.reservations {
		add(r.ID, "capacity-reservation", r.Tags)
	}
	for _, g := range e.groups {
		if e.exists(g, e.cfg.Clock.Now()) {
			add(g.ID, "placement-group", g.Tags)
		}
	}
	for _, v := range e.network.vpcs {
		add(v.ID, "vpc", v.Tags)
	}
	for _, s := range e.network.subnets {
		add(s.ID, "subnet", s.Tags)
	}
	for _, g := range e.network.groups {
		add(g.ID, "security-group", g.Tags)
	}
	for _, t := range e.network.tables {
		add(t.ID, "route-table", t.Tags)
	}
	return all
}
