package ec2

import (
	"maps"
	"slices"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/image"
	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

type copyImageInput struct {
	DryRun       bool               `query:"DryRun"`
	SourceID     string             `query:"SourceImageId,required"`
	SourceRegion string             `query:"SourceRegion,required"`
	Name         string             `query:"Name,required"`
	Description  string             `query:"Description"`
	CopyTags     bool               `query:"CopyImageTags"`
	Encrypted    bool               `query:"Encrypted"`
	Tags         []tagSpecification `query:"TagSpecification"`
	ClientToken  string             `query:"ClientToken"`

	KMSKey     *unsupported `query:"KmsKeyId,unsupported"`
	OutpostARN *unsupported `query:"DestinationOutpostArn,unsupported"`
	Zone       *unsupported `query:"DestinationAvailabilityZone,unsupported"`
	ZoneID     *unsupported `query:"DestinationAvailabilityZoneId,unsupported"`
	Completion *unsupported `query:"SnapshotCopyCompletionDurationMinutes,unsupported"`
}

type copyImageOutput struct {
	ID string `xml:"imageId"`
}

// Limits of an image's name, in characters.
const shortestImageName, longestImageName = 3, 128

// copyImage makes an image of the account's own of one that it may use. The copy is available at once.
func (e *EC2) copyImage(r *protocol.Request, in *copyImageInput) (*copyImageOutput, error) {
	switch {
	case in.SourceRegion != e.cfg.Region:
		return nil, protocol.Errorf("UnsupportedOperation", "The simulator has the region %s only", e.cfg.Region)
	case len(in.Name) < shortestImageName || len(in.Name) > longestImageName:
		return nil, protocol.Errorf(
			"InvalidAMIName.Malformed",
			"AMI names must be between %d and %d characters long",
			shortestImageName,
			longestImageName,
		)
	}
	if err := checkSpecifications(in.Tags, "image", "snapshot"); err != nil {
		return nil, err
	}
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	source, err := e.imageFor(in.SourceID)
	if err != nil {
		return nil, err
	}
	tags := tagsFor("image", in.Tags)
	needs := append(e.making(r.Action, "image", tags), e.on("image", source.ID, source.tags, "ec2:ImageID", source.ID))
	if err := r.Authorize(needs...); err != nil {
		return nil, err
	}
	if in.DryRun {
		return nil, dryRun()
	}
	return once(e, r, in.ClientToken, func() (*copyImageOutput, error) {
		if in.CopyTags && source.OwnerID == e.cfg.AccountID {
			merged := map[string]string{} // an image may have no tags
			maps.Copy(merged, source.tags)
			maps.Copy(merged, tags)
			tags = merged
		}
		made := source.Image
		made.ID, made.Name, made.OwnerID, made.OwnerAlias = e.newID("ami"), in.Name, e.cfg.AccountID, ""
		made.Created, made.Deprecated, made.Parameters = now, time.Time{}, nil
		if in.Description != "" {
			made.Description = in.Description
		}
		made.Disks = slices.Clone(source.Disks)
		for i := range made.Disks {
			made.Disks[i] = image.Disk{Device: made.Disks[i].Device, SizeGiB: made.Disks[i].SizeGiB, SnapshotID: e.newID("snap")}
		}
		e.images[made.ID] = &ami{Image: made, tags: tags, encrypted: in.Encrypted || source.encrypted}
		e.copies[made.ID] = source.ID
		r.Touch(made.ID)
		return &copyImageOutput{ID: made.ID}, nil
	})
}

// ImageContent is the image that the disks of an image come from: itself, or what it was copied from, directly or not. This is no call of
// the API.
func (e *EC2) ImageContent(id string) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for e.copies[id] != "" {
		id = e.copies[id]
	}
	return id
}

// imageFor is an image that the account may use. The lock must be held.
func (e *EC2) imageFor(id string) (*ami, error) {
	if err := imageIDs().check(id); err != nil {
		return nil, err
	}
	a := e.images[id]
	if a == nil || !a.usable(e.cfg.AccountID) {
		return nil, imageIDs().absent(id)
	}
	return a, nil
}

type deprecateImageInput struct {
	DryRun bool      `query:"DryRun"`
	ID     string    `query:"ImageId,required"`
	At     time.Time `query:"DeprecateAt,required"`
}

// longestDeprecation is how far ahead an image's owner can set the time of its deprecation.
const longestDeprecation = 10 * 365 * 24 * time.Hour

// enableImageDeprecation sets when an image of the account's own counts as deprecated, to the minute.
func (e *EC2) enableImageDeprecation(r *protocol.Request, in *deprecateImageInput) (*changed, error) {
	now := e.cfg.Clock.Now()
	at := in.At.Truncate(time.Minute)
	switch {
	case at.Before(now.Truncate(time.Minute)):
		return nil, invalidValue("Value (%s) for parameter DeprecateAt is invalid. The date must be in the future", stamp(in.At))
	case at.Sub(now) > longestDeprecation:
		return nil, invalidValue("Value (%s) for parameter DeprecateAt is invalid. The date must be within 10 years", stamp(in.At))
	}
	return e.setDeprecation(r, in.ID, in.DryRun, at)
}

type undeprecateImageInput struct {
	DryRun bool   `query:"DryRun"`
	ID     string `query:"ImageId,required"`
}

// disableImageDeprecation takes the time of its deprecation from an image of the account's own.
func (e *EC2) disableImageDeprecation(r *protocol.Request, in *undeprecateImageInput) (*changed, error) {
	return e.setDeprecation(r, in.ID, in.DryRun, time.Time{})
}

func (e *EC2) setDeprecation(r *protocol.Request, id string, dry bool, at time.Time) (*changed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a, err := e.imageFor(id)
	if err != nil {
		return nil, err
	}
	if err := r.Authorize(e.on("image", a.ID, a.tags, "ec2:ImageID", a.ID, "ec2:Owner", a.OwnerID)); err != nil {
		return nil, err
	}
	switch {
	case a.OwnerID != e.cfg.AccountID:
		return nil, protocol.Errorf("AuthFailure", "Not authorized for image:%s", id)
	case dry:
		return nil, dryRun()
	}
	edited := *a
	edited.Deprecated = at
	e.images[id] = &edited
	r.Touch(id)
	return &changed{Return: true}, nil
}
