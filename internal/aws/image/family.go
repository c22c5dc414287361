package image

import (
	"slices"
	"strings"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Family returns the AMI family of a node class.
func Family(class *awsv1.EC2NodeClass) string { return class.ImageFamily() }

func aliasOf(class *awsv1.EC2NodeClass) (string, bool) {
	for _, term := range class.Spec.AMISelectorTerms {
		if term.Alias != "" {
			return term.Alias, true
		}
	}
	return "", false
}

// BottlerocketVersion returns the version of Bottlerocket that a class runs: from the alias, else from a name in the
// selector, else from the name of a found image. It is empty if none contains a version.
func BottlerocketVersion(class *awsv1.EC2NodeClass) string {
	if alias, ok := aliasOf(class); ok {
		_, version, _ := strings.Cut(alias, "@")
		return version
	}
	for _, term := range class.Spec.AMISelectorTerms {
		if v := versionIn(term.Name); v != "" {
			return v
		}
	}
	ids := func(id string) bool {
		return slices.ContainsFunc(class.Spec.AMISelectorTerms, func(t awsv1.AMISelectorTerm) bool { return t.ID == id })
	}
	for _, ami := range class.Status.AMIs {
		if v := versionIn(ami.Name); v != "" && ids(ami.ID) {
			return v
		}
	}
	for _, ami := range class.Status.AMIs {
		if v := versionIn(ami.Name); v != "" && strings.Contains(ami.Name, "bottlerocket") {
			return v
		}
	}
	return ""
}

// versionIn returns the part like v1.46.0 between the dashes of an image's name.
func versionIn(name string) string {
	for _, piece := range strings.Split(name, "-") {
		if strings.HasPrefix(piece, "v") && strings.Contains(piece, ".") {
			return piece
		}
	}
	return ""
}
