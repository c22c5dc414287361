package v1

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations of an EC2NodeClass with which roll-outs are rolled back. They are ours alone, but a person may remove AnnotationRollback:
// then the images that were rolled back are rolled out again.
const (
	// AnnotationKnownGood is a KnownGood.
	AnnotationKnownGood = "dovetail.sh/known-good"
	// AnnotationRollback is a Rollback.
	AnnotationRollback = "dovetail.sh/rollback"
)

// ConditionRolledBack of an EC2NodeClass is True while it uses images that are known to be good in place of those that it selects, and
// False while that would be right and is not possible. It is missing otherwise, and Ready does not depend on it.
const ConditionRolledBack = "RolledBack"

// KnownGood is what nodes of a class were launched from that have stayed healthy for a soak, with no roll-out under way.
type KnownGood struct {
	AMIs []AMI `json:"amis"`
	// Hash is that of the class, Pools are those of the templates of NodePools by their names: images are only known to be good with them.
	Hash  string            `json:"hash"`
	Pools map[string]string `json:"pools,omitempty"`
	Since metav1.Time       `json:"since"`
}

// Rollback is the decision to use images that are known to be good. It holds for one generation of the class and for the images that it
// selected: it is void once either is another.
type Rollback struct {
	// From are the IDs of the images that are not used, sorted.
	From       []string    `json:"from"`
	Generation int64       `json:"generation"`
	At         metav1.Time `json:"at"`
	NodePool   string      `json:"nodePool"`
	// Why states what failed, for people.
	Why string `json:"why"`
}

// KnownGood returns what is known to be good; found is false if nothing is, or cannot be read.
func (c *EC2NodeClass) KnownGood() (good KnownGood, found bool) {
	text, found := c.Annotations[AnnotationKnownGood]
	if !found || json.Unmarshal([]byte(text), &good) != nil || len(good.AMIs) == 0 {
		return KnownGood{}, false
	}
	return good, true
}

// Rollback returns the decision to use images that are known to be good; found is false if there is none that holds for the generation.
func (c *EC2NodeClass) Rollback() (decision Rollback, found bool) {
	text, found := c.Annotations[AnnotationRollback]
	if !found || json.Unmarshal([]byte(text), &decision) != nil || decision.Generation != c.Generation {
		return Rollback{}, false
	}
	return decision, true
}

// RolledBack returns the images to use in place of those that the class selects; none if it uses these.
func (c *EC2NodeClass) RolledBack(selected []AMI) []AMI {
	decision, rolled := c.Rollback()
	good, known := c.KnownGood()
	if !rolled || !known || !slices.Equal(ImageIDs(selected), decision.From) {
		return nil
	}
	return good.AMIs
}

// ImageIDs are the IDs of images, sorted.
func ImageIDs(images []AMI) []string {
	out := make([]string, len(images))
	for i := range images {
		out[i] = images[i].ID
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Annotate sets an annotation of the class to a KnownGood or Rollback in JSON, and reports whether that changes it.
func (c *EC2NodeClass) Annotate(key string, value any) (changed bool, err error) {
	text, err := json.Marshal(value)
	if err != nil {
		return false, err
	}
	before := c.Annotations[key]
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, string(text))
	return before != string(text), nil
}

// RollbackPatience is how long it may take until the images of a class are those that are known to be good, in a rollback.
const RollbackPatience = 2 * time.Minute
