package ec2

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
	"github.com/dovetail-k8s/dovetail/lab/awsim/policy"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// asking are the actions that know resources: their handlers request the right to them. All others are allowed or not,
// whatever they are about.
func asking() []string {
	return []string{
		"AttachVolume", "CancelCapacityReservation", "CopyImage", "CreateCapacityReservation", "CreateFleet",
		"CreateLaunchTemplate", "CreateLaunchTemplateVersion", "CreatePlacementGroup", "CreateSecurityGroup", "CreateTags", "CreateVolume",
		"DeleteLaunchTemplate", "DeleteLaunchTemplateVersions", "DeletePlacementGroup", "DeleteSecurityGroup", "DeleteTags", "DeleteVolume",
		"DetachVolume", "DisableImageDeprecation", "EnableImageDeprecation", "GetConsoleOutput", "ModifyCapacityReservation",
		"ModifyLaunchTemplate", "ModifySubnetAttribute", "RebootInstances", "RunInstances", "StartInstances", "StopInstances",
		"TerminateInstances",
	}
}

// resource is the ARN of a resource. Images and snapshots are of no account in it.
func (e *EC2) resource(kind, id string) string {
	account := e.cfg.AccountID
	if kind == "image" || kind == "snapshot" {
		account = ""
	}
	return "arn:aws:ec2:" + e.cfg.Region + ":" + account + ":" + kind + "/" + id
}

// on is the need of a call on a resource that exists; more are pairs of condition keys and values.
func (e *EC2) on(kind, id string, tags map[string]string, more ...string) protocol.RequiredPermission {
	keys := policy.Keys{}
	keys.Tags("aws:ResourceTag/", tags)
	keys.Tags("ec2:ResourceTag/", tags)
	put(keys, more)
	return protocol.RequiredPermission{Resource: e.resource(kind, id), Keys: keys}
}

// making are the needs of a call that makes a resource: the right to make it, and that to tag it.
func (e *EC2) making(action, kind string, tags map[string]string, more ...string) []protocol.RequiredPermission {
	keys := policy.Keys{}
	putRequestTags(keys, tags)
	put(keys, more)
	need := protocol.RequiredPermission{Action: "ec2:" + action, Resource: e.resource(kind, "*"), Keys: keys}
	if ownTags(tags) == 0 {
		return []protocol.RequiredPermission{need}
	}
	tagging := policy.Keys{}
	putRequestTags(tagging, tags)
	tagging.Put("ec2:CreateAction", action)
	return []protocol.RequiredPermission{need, {Action: "ec2:CreateTags", Resource: need.Resource, Keys: tagging}}
}

// putRequestTags sets the keys of tags that a request gives. AWS's own are not the caller's.
func putRequestTags(keys policy.Keys, tags map[string]string) {
	var names []string
	for key, value := range tags {
		if !strings.HasPrefix(key, "aws:") {
			keys.Put("aws:RequestTag/"+key, value)
			names = append(names, key)
		}
	}
	if len(names) > 0 {
		keys.Put("aws:TagKeys", names...)
	}
}

// put sets pairs of keys and values, of which empty ones are absent.
func put(keys policy.Keys, pairs []string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			keys.Put(pairs[i], pairs[i+1])
		}
	}
}

func (e *EC2) onTemplate(t *template) protocol.RequiredPermission {
	return e.on("launch-template", t.id, t.tags)
}

func (e *EC2) onInstance(r *instanceRecord) protocol.RequiredPermission {
	return e.on(
		"instance",
		r.ID,
		r.Tags,
		"ec2:InstanceType",
		r.Type,
		"ec2:AvailabilityZone",
		r.Zone,
		"ec2:InstanceProfile",
		r.InstanceProfileARN,
		"ec2:InstanceID",
		r.ID,
		"ec2:RootDeviceType",
		"ebs",
	)
}

func (e *EC2) onVolume(v *volume) protocol.RequiredPermission {
	return e.on(
		"volume",
		v.id,
		v.tags,
		"ec2:VolumeID",
		v.id,
		"ec2:AvailabilityZone",
		v.zone,
		"ec2:VolumeType",
		v.kind,
		"ec2:VolumeSize",
		strconv.Itoa(v.sizeGiB),
	)
}

// launching are the needs of a launch by RunInstances, or by a fleet that calls it in its caller's name. The lock must
// be held.
func (e *EC2) launching(o *launchPlan, q launchRequest) []protocol.RequiredPermission {
	const action = "RunInstances"
	var needs []protocol.RequiredPermission
	for _, n := range e.ingredients(o, q) {
		n.Action = "ec2:" + action
		needs = append(needs, n)
	}
	viaTemplate := strconv.FormatBool(e.templates.templateOf(q) != nil)
	profile, market := "", "on-demand"
	if o.profile != nil {
		profile = o.profile.ARN
	}
	if o.lifecycle == spotLifecycle {
		market = "spot"
	}
	makes := o.makes()
	for _, kind := range slices.Sorted(maps.Keys(makes)) {
		more := []string{"ec2:AvailabilityZone", o.subnet.Zone, "ec2:IsLaunchTemplateResource", viaTemplate}
		if kind == "instance" {
			more = append(more, "ec2:InstanceType", o.instanceType.Name, "ec2:InstanceProfile", profile, "ec2:InstanceMarketType", market,
				"ec2:MetadataHttpTokens", showMetadata(o.data.Metadata, Running).Tokens, "ec2:RootDeviceType", "ebs")
		}
		needs = append(needs, e.making(action, kind, makes[kind], more...)...)
	}
	if o.profile != nil {
		needs = append(needs, iam.PassRole(o.profile.RoleARN))
	}
	return needs
}

// makes are the kinds of resources that a launch makes, with their tags.
func (o *launchPlan) makes() map[string]map[string]string {
	out := map[string]map[string]string{"instance": o.tags.instance, "volume": o.tags.volume, "network-interface": o.tags.nic}
	if o.lifecycle == spotLifecycle {
		out["spot-instances-request"] = o.tags.spot
	}
	return out
}

// ingredients are the existing resources that a launch uses.
func (e *EC2) ingredients(o *launchPlan, q launchRequest) []protocol.RequiredPermission {
	vpc := e.resource("vpc", o.subnet.VPCID)
	needs := []protocol.RequiredPermission{
		e.on("image", o.image.ID, o.image.tags, "ec2:ImageID", o.image.ID, "ec2:ImageType", "machine", "ec2:RootDeviceType", "ebs"),
		e.on("subnet", o.subnet.ID, o.subnet.Tags, "ec2:SubnetID", o.subnet.ID, "ec2:Vpc", vpc, "ec2:AvailabilityZone", o.subnet.Zone),
	}
	for _, n := range o.nics {
		for _, g := range n.groups {
			needs = append(needs, e.on("security-group", g.ID, g.Tags, "ec2:SecurityGroupID", g.ID, "ec2:Vpc", vpc))
		}
	}
	if t := e.templates.templateOf(q); t != nil {
		needs = append(needs, e.onTemplate(t))
	}
	for _, d := range o.data.Disks {
		if d.EBS != nil && d.EBS.Snapshot != "" { // those of the image come with it
			needs = append(needs, e.on("snapshot", d.EBS.Snapshot, nil))
		}
	}
	if _, id := o.reservationPreference(); id != "" {
		if r := e.reservation(id); r != nil {
			needs = append(needs, e.on("capacity-reservation", r.ID, r.Tags))
		}
	}
	if g := o.placed; g != nil {
		needs = append(
			needs,
			e.on("placement-group", g.Name, g.Tags, "ec2:PlacementGroupName", g.Name, "ec2:PlacementGroupStrategy", g.Strategy),
		)
	}
	return needs
}

// templateOf is the launch template that a request names, nil without one.
func (t *templates) templateOf(q launchRequest) *template {
	return t.byID[q.systemTags["aws:ec2launchtemplate:id"]]
}

// fleetNeeds are those of the call CreateFleet itself: the right to make the fleet, and to use and make in its name
// whatever its candidates come to. Those of the launches are requested one by one. The lock must be held.
func (e *EC2) fleetNeeds(in *createFleetInput, candidates []*candidate) []protocol.RequiredPermission {
	const action = "CreateFleet"
	needs := e.making(action, "fleet", tagsFor("fleet", in.Tags))
	seen := map[string]bool{}
	add := func(more ...protocol.RequiredPermission) {
		for _, n := range more {
			if n.Action == "" {
				n.Action = "ec2:" + action
			}
			if key := n.Action + n.Resource; !seen[key] {
				seen[key] = true
				needs = append(needs, n)
			}
		}
	}
	spot := in.Target.Default == spotLifecycle || in.share(in.Target.Spot) > 0
	for _, c := range candidates {
		q := c.request
		if t := e.templates.templateOf(q); t != nil {
			add(e.onTemplate(t))
		}
		if i := e.images[q.imageID]; i != nil {
			add(e.on("image", i.ID, i.tags))
		}
		if s := e.network.subnet(q.subnetID); s != nil {
			add(e.on("subnet", s.ID, s.Tags))
		}
		for _, id := range q.data.groupIDs() {
			if g := e.network.group(id); g != nil {
				add(e.on("security-group", g.ID, g.Tags))
			}
		}
		for _, kind := range launchedKinds() {
			if kind == "spot-instances-request" && !spot {
				continue
			}
			add(e.making(action, kind, tagsFor(kind, q.data.Tags, q.tags))[0]) // tags are given by the launch
		}
	}
	return needs
}

// groupIDs are the security groups of the data, wherever they stand.
func (d *templateData) groupIDs() []string {
	out := slices.Clone(d.SecurityGroupIDs)
	for _, n := range d.Interfaces {
		out = append(out, n.Groups...)
	}
	return out
}

// retagging is the need of a call that changes the tags of a resource: those that it has, and those that are given or
// taken.
func (e *EC2) retagging(t tagged, given []changeTag) protocol.RequiredPermission {
	tags, names := map[string]string{}, []string{}
	for _, g := range given {
		if names = append(names, g.Key); g.Value != nil {
			tags[g.Key] = *g.Value
		}
	}
	need := e.on(t.kind, t.id, t.tags)
	maps.DeleteFunc(tags, func(key, _ string) bool { return strings.HasPrefix(key, "aws:") })
	need.Keys.Tags("aws:RequestTag/", tags)
	if len(names) > 0 {
		need.Keys.Put("aws:TagKeys", names...)
	}
	return need
}
