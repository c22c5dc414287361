package ec2

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// amazonOwners is the alias for the accounts of Amazon.
const amazonOwners = "amazon"

func imageIDs() idRules {
	return idRules{
		prefix:    "ami",
		malformed: "InvalidAMIID.Malformed",
		notFound:  "InvalidAMIID.NotFound",
		missing: func(ids []string) string {
			if len(ids) == 1 {
				return "The image id '[" + ids[0] + "]' does not exist"
			}
			return "The image ids '[" + strings.Join(ids, ", ") + "]' do not exist"
		},
	}
}

type describeImagesInput struct {
	listInput
	IDs               []string `query:"ImageId"`
	Owners            []string `query:"Owner"`
	ExecutableBy      []string `query:"ExecutableBy"`
	IncludeDeprecated bool     `query:"IncludeDeprecated"`
	IncludeDisabled   bool     `query:"IncludeDisabled"`
}

type describeImagesOutput struct {
	Images []imageInfo `xml:"imagesSet>item"`
	Next   *string     `xml:"nextToken"`
}

type imageInfo struct {
	ID              string      `xml:"imageId"`
	Location        string      `xml:"imageLocation"`
	State           string      `xml:"imageState"`
	Owner           string      `xml:"imageOwnerId"`
	OwnerAlias      string      `xml:"imageOwnerAlias,omitempty"`
	Created         string      `xml:"creationDate"`
	Deprecated      string      `xml:"deprecationTime,omitempty"`
	Public          bool        `xml:"isPublic"`
	Architecture    string      `xml:"architecture"`
	Type            string      `xml:"imageType"`
	Platform        string      `xml:"platform,omitempty"`
	PlatformDetails string      `xml:"platformDetails"`
	UsageOperation  string      `xml:"usageOperation"`
	Name            string      `xml:"name"`
	Description     string      `xml:"description"`
	RootDeviceType  string      `xml:"rootDeviceType"`
	RootDevice      string      `xml:"rootDeviceName"`
	Virtualization  string      `xml:"virtualizationType"`
	Hypervisor      string      `xml:"hypervisor"`
	ENA             bool        `xml:"enaSupport"`
	IMDS            string      `xml:"imdsSupport,omitempty"`
	Disks           []imageDisk `xml:"blockDeviceMapping>item"`
	Tags            []tag       `xml:"tagSet>item"`
}

type imageDisk struct {
	Device              string `xml:"deviceName"`
	Snapshot            string `xml:"ebs>snapshotId"`
	Size                int    `xml:"ebs>volumeSize"`
	DeleteOnTermination bool   `xml:"ebs>deleteOnTermination"`
	Type                string `xml:"ebs>volumeType"`
	Encrypted           bool   `xml:"ebs>encrypted"`
}

// ami is an image that is registered in the account or public.
type ami struct {
	image.Image
	tags map[string]string
	// state is empty for those that are available.
	state string
	// shared reports that the owner shared it with the account.
	shared bool
	// encrypted reports that its snapshots are encrypted.
	encrypted bool
}

// public reports whether everybody may use the image, as for Amazon's images.
func (a *ami) public() bool { return a.OwnerAlias != "" }

// usable reports whether the account may use the image.
func (a *ami) usable(own string) bool { return a.OwnerID == own || a.public() || a.shared }

// States of an image besides available.
const (
	imageAvailable = "available"
	imageDisabled  = "disabled"
)

// AddImage registers an image of the account's own and returns its ID. Owner and ID are assigned.
func (e *EC2) AddImage(img image.Image, tags map[string]string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	img.ID, img.OwnerID, img.OwnerAlias = e.newID("ami"), e.cfg.AccountID, ""
	for i := range img.Disks {
		if img.Disks[i].SnapshotID == "" {
			img.Disks[i].SnapshotID = e.newID("snap")
		}
	}
	e.images[img.ID] = &ami{Image: img, tags: tags}
	return img.ID
}

// AddForeignImage registers an image of another account and returns its ID. Nobody else may use it until it is shared.
func (e *EC2) AddForeignImage(img image.Image, owner string) string {
	id := e.AddImage(img, nil)
	e.changeImage(id, func(a *ami) { a.OwnerID = owner })
	return id
}

// ShareImage has the owner of an image let the account use it, or no longer.
func (e *EC2) ShareImage(id string, shared bool) {
	e.changeImage(id, func(a *ami) { a.shared = shared })
}

// SetImageState puts an image into a state: available, pending, failed or disabled.
func (e *EC2) SetImageState(id, state string) error {
	if err := oneOf("state", state, imageAvailable, "pending", "failed", imageDisabled); err != nil {
		return err
	}
	e.changeImage(id, func(a *ami) { a.state = state })
	return nil
}

func (e *EC2) changeImage(id string, edit func(*ami)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.images[id]; old != nil {
		changed := *old
		edit(&changed)
		e.images[id] = &changed
	}
}

// DeprecateImage makes an image count as deprecated from now on.
func (e *EC2) DeprecateImage(id string) {
	now := e.cfg.Clock.Now()
	e.changeImage(id, func(a *ami) { a.Deprecated = now })
}

func (e *EC2) describeImages(_ *protocol.Request, in *describeImagesInput) (*describeImagesOutput, error) {
	now := e.applyDueTransitions()
	all := locked(e, func() []*ami {
		list := make([]*ami, 0, len(e.images))
		for _, a := range e.images {
			list = append(list, a)
		}
		return list
	})
	slices.SortFunc(all, func(a, b *ami) int { return strings.Compare(a.ID, b.ID) })
	own, n := e.cfg.AccountID, imageNoun()
	if len(in.IDs) > 0 {
		var err error
		if all, err = n.pick(in.IDs, all); err != nil {
			return nil, err
		}
	}
	// Images that exist and are not for the account are left out, also when they are named. Deprecated images show on
	// request, to their owner, and by ID.
	hidden := func(a *ami) bool {
		deprecated := !a.Deprecated.IsZero() && !a.Deprecated.After(now)
		return deprecated && !in.IncludeDeprecated && a.OwnerID != own && !slices.Contains(in.IDs, a.ID)
	}
	all = slices.DeleteFunc(all, func(a *ami) bool {
		return hidden(a) || !a.usable(own) || a.state == imageDisabled && !in.IncludeDisabled || !ownedBy(a, in.Owners, own) ||
			!executableBy(a, in.ExecutableBy, own)
	})
	p, err := n.list(in.listInput, nil, all)
	if err != nil {
		return nil, err
	}
	out := &describeImagesOutput{Next: p.next}
	for _, a := range p.items {
		out.Images = append(out.Images, showImage(a))
	}
	return out, nil
}

// ownedBy applies the parameter Owner: account IDs and the aliases self, amazon, aws-marketplace.
func ownedBy(a *ami, owners []string, own string) bool {
	return len(owners) == 0 || slices.ContainsFunc(owners, func(owner string) bool {
		return owner == a.OwnerID || owner == "self" && a.OwnerID == own || owner != "" && owner == a.OwnerAlias
	})
}

// executableBy applies the parameter ExecutableBy: who has launch permission, that is all or the account.
func executableBy(a *ami, users []string, own string) bool {
	return len(users) == 0 || slices.ContainsFunc(users, func(user string) bool {
		return user == "all" && a.public() || (user == "self" || user == own) && (a.OwnerID == own || a.shared)
	})
}

func imageNoun() resourceKind[*ami] {
	text := func(get func(imageInfo) string) func(*ami) []string {
		return one(func(a *ami) string { return get(showImage(a)) })
	}
	disks := func(get func(image.Disk) string) func(*ami) []string {
		return func(a *ami) (values []string) {
			for _, d := range a.Disks {
				values = append(values, get(d))
			}
			return values
		}
	}
	return resourceKind[*ami]{
		id: func(a *ami) string { return a.ID }, tags: func(a *ami) map[string]string { return a.tags },
		ids: imageIDs(), minResults: 1, maxResults: 1000,
		properties: properties[*ami]{
			"architecture":                     one(func(a *ami) string { return a.Architecture }),
			"block-device-mapping.device-name": disks(func(d image.Disk) string { return d.Device }),
			"block-device-mapping.snapshot-id": disks(func(d image.Disk) string { return d.SnapshotID }),
			"creation-date":                    text(func(i imageInfo) string { return i.Created }),
			"description":                      one(func(a *ami) string { return a.Description }),
			"ena-support":                      flag(func(*ami) bool { return true }),
			"hypervisor":                       text(func(i imageInfo) string { return i.Hypervisor }),
			"image-id":                         one(func(a *ami) string { return a.ID }),
			"image-type":                       text(func(i imageInfo) string { return i.Type }),
			"is-public":                        flag((*ami).public),
			"name":                             one(func(a *ami) string { return a.Name }),
			"owner-alias":                      one(func(a *ami) string { return a.OwnerAlias }),
			"owner-id":                         one(func(a *ami) string { return a.OwnerID }),
			"platform":                         one(func(a *ami) string { return a.Platform }),
			"root-device-name":                 one(func(a *ami) string { return a.RootDevice }),
			"root-device-type":                 text(func(i imageInfo) string { return i.RootDeviceType }),
			"state":                            text(func(i imageInfo) string { return i.State }),
			"virtualization-type":              text(func(i imageInfo) string { return i.Virtualization }),
		},
	}
}

func showImage(a *ami) imageInfo {
	i := imageInfo{
		ID: a.ID, Location: a.OwnerID + "/" + a.Name, State: cmp.Or(a.state, imageAvailable), Owner: a.OwnerID, OwnerAlias: a.OwnerAlias,
		Created: stamp(a.Created), Deprecated: stamp(a.Deprecated), Public: a.public(), Architecture: a.Architecture, Type: "machine",
		Platform: a.Platform, PlatformDetails: "Linux/UNIX", UsageOperation: "RunInstances", Name: a.Name, Description: a.Description,
		RootDeviceType: "ebs", RootDevice: a.RootDevice, Virtualization: "hvm", Hypervisor: "xen", ENA: true, Tags: tagList(a.tags),
	}
	if a.OwnerAlias != "" {
		i.Location = amazonOwners + "/" + a.Name
	}
	if a.Platform == "windows" {
		i.PlatformDetails, i.UsageOperation = "Windows", "RunInstances:0002"
	}
	if strings.Contains(a.Name, "al2023") {
		i.IMDS = "v2.0"
	}
	for _, d := range a.Disks {
		i.Disks = append(
			i.Disks,
			imageDisk{Device: d.Device, Snapshot: d.SnapshotID, Size: d.SizeGiB, DeleteOnTermination: true, Type: "gp3", Encrypted: a.encrypted},
		)
	}
	return i
}
