package ec2

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// tag is a key and its value.
type tag struct {
	Key   string `query:"Key" xml:"key"`
	Value string `query:"Value" xml:"value"`
}

// tagSpecification is tags for the things of one kind that a request creates.
type tagSpecification struct {
	ResourceType string `query:"ResourceType" xml:"resourceType"`
	Tags         []tag  `query:"Tag" xml:"tagSet>item"`
}

// Limits of EC2 tags.
const (
	maxTags     = 50
	maxTagKey   = 128 // characters
	maxTagValue = 256
)

// checkTags rejects tags that no resource can have.
func checkTags(tags []tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		switch {
		case t.Key == "":
			return missing("Tag.Key")
		case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
			return invalidValue("Value ( %s ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved for internal use", t.Key)
		case utf8.RuneCountInString(t.Key) > maxTagKey:
			return invalidValue("Tag key exceeds the maximum length of %d characters", maxTagKey)
		case utf8.RuneCountInString(t.Value) > maxTagValue:
			return invalidValue("Tag value exceeds the maximum length of %d characters", maxTagValue)
		case seen[t.Key]:
			return invalidValue("Duplicate tag key '%s' specified.", t.Key)
		}
		seen[t.Key] = true
	}
	if len(tags) > maxTags {
		return tooManyTags()
	}
	return nil
}

func tooManyTags() error {
	return protocol.Errorf("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
}

// checkSpecifications rejects tags for kinds of resources that the request does not create.
func checkSpecifications(specs []tagSpecification, kinds ...string) error {
	seen := map[string]bool{}
	for _, s := range specs {
		switch {
		case s.ResourceType == "":
			return missing("TagSpecification.ResourceType")
		case !slices.Contains(kinds, s.ResourceType):
			return invalidValue("'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		case seen[s.ResourceType]:
			return invalidValue("Duplicate resource type '%s' in the tag specifications", s.ResourceType)
		}
		seen[s.ResourceType] = true
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	return nil
}

// tagsFor collects the tags for one kind of resource; later specifications win.
func tagsFor(kind string, specs ...[]tagSpecification) map[string]string {
	tags := map[string]string{}
	for _, list := range specs {
		for _, s := range list {
			if s.ResourceType == kind {
				for _, t := range s.Tags {
					tags[t.Key] = t.Value
				}
			}
		}
	}
	return tags
}

// tagList returns tags sorted by key, as they are shown.
func tagList(tags map[string]string) []tag {
	list := make([]tag, 0, len(tags))
	for k, v := range tags {
		list = append(list, tag{Key: k, Value: v})
	}
	slices.SortFunc(list, func(a, b tag) int { return strings.Compare(a.Key, b.Key) })
	return list
}
