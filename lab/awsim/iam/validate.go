package iam

import (
	"encoding/json"
	"regexp"
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

var (
	namePattern = regexp.MustCompile(`^[\w+=,.@-]+$`)
	pathPattern = regexp.MustCompile(`^(/|/[!-~]+/)$`)
	// A path prefix need not end in a slash.
	prefixPattern = regexp.MustCompile(`^/[!-~]*$`)
	tagPattern    = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
)

// checkName checks a required name; parameter is spelled as IAM's messages spell it (instanceProfileName).
func checkName(parameter, name string, longest int) error {
	switch {
	case name == "":
		return unsatisfied("null", parameter, "Member must not be null")
	case len(name) > longest:
		return tooLong(name, parameter, longest)
	case !namePattern.MatchString(name):
		return invalid(
			"The specified value for %s is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-",
			parameter,
		)
	}
	return nil
}

func checkPath(path string) error {
	switch {
	case path == "":
		return nil
	case len(path) > 512:
		return tooLong(path, "path", 512)
	case !pathPattern.MatchString(path):
		return invalid(
			"The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.",
		)
	}
	return nil
}

func checkPathPrefix(prefix string) error {
	if prefix != "" && (len(prefix) > 512 || !prefixPattern.MatchString(prefix)) {
		return invalid(
			"The specified value for pathPrefix is invalid. It must begin with the / character and contain only alphanumeric characters and/or / characters.",
		)
	}
	return nil
}

// checkTags checks tags to be put on something that has the tags present.
func checkTags(add, present []Tag) error {
	seen := map[string]bool{}
	for _, t := range add {
		key := strings.ToLower(t.Key)
		switch {
		case t.Key == "":
			return unsatisfied("", "tags.member.key", "Member must have length greater than or equal to 1")
		case len([]rune(t.Key)) > 128:
			return tooLong(t.Key, "tags.member.key", 128)
		case len([]rune(t.Value)) > 256:
			return tooLong(t.Value, "tags.member.value", 256)
		case !tagPattern.MatchString(t.Key) || !tagPattern.MatchString(t.Value):
			return unsatisfied(t.Key+"="+t.Value, "tags.member", `Member must satisfy regular expression pattern: [\p{L}\p{Z}\p{N}_.:/=+\-@]*`)
		case strings.HasPrefix(key, "aws:"):
			return protocol.Errorf("InvalidInput", "System tags cannot be added/updated by requester.")
		case seen[key]:
			return protocol.Errorf("InvalidInput", "Duplicate tag keys found. Please note that Tag keys are case insensitive.")
		}
		seen[key] = true
	}
	if len(mergeTags(present, add)) > maxTags {
		return limitExceeded("TagsPerResource", maxTags)
	}
	return nil
}

// mergeTags returns present with add put over it; a key keeps the spelling under which it was first written.
func mergeTags(present, add []Tag) []Tag {
	out := append([]Tag(nil), present...)
	for _, t := range add {
		at := findTag(out, t.Key)
		if at < 0 {
			out = append(out, t)
			continue
		}
		out[at].Value = t.Value
	}
	return out
}

func findTag(tags []Tag, key string) int {
	for i, t := range tags {
		if strings.EqualFold(t.Key, key) {
			return i
		}
	}
	return -1
}

// checkPolicy checks the grammar of a policy document as far as IAM does when it is written: JSON with statements.
func checkPolicy(parameter, document string) error {
	if document == "" {
		return unsatisfied("null", parameter, "Member must not be null")
	}
	var policy struct {
		Version   string
		Statement json.RawMessage
	}
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		return protocol.Errorf("MalformedPolicyDocument", "This policy contains invalid Json")
	}
	if len(policy.Statement) == 0 {
		return protocol.Errorf("MalformedPolicyDocument", "Syntax errors in policy.")
	}
	if policy.Version != "" && policy.Version != "2012-10-17" && policy.Version != "2008-10-17" {
		return protocol.Errorf("MalformedPolicyDocument", "The policy must contain a valid version string")
	}
	return nil
}

func tooLong(value, parameter string, longest int) error {
	return invalid(
		"1 validation error detected: Value '%s' at '%s' failed to satisfy constraint: Member must have length less than or equal to %d",
		value,
		parameter,
		longest,
	)
}

func unsatisfied(value, parameter, constraint string) error {
	if value != "null" {
		value = "'" + value + "'"
	}
	return invalid("1 validation error detected: Value %s at '%s' failed to satisfy constraint: %s", value, parameter, constraint)
}
