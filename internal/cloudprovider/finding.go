package cloudprovider

// Certainty states how much is known about a Finding.
type Certainty string

// How certain a finding is. Only certain findings prevent launches.
const (
	// Certain findings follow from what was read: nodes cannot join until they are fixed.
	Certain Certainty = "certain"
	// Likely findings explain the symptom, but something else might, too.
	Likely Certainty = "likely"
	// Unchecked findings name what could not be checked, and why.
	Unchecked Certainty = "could not be checked"
)

// CauseUnknown is the cause of a failure without an explanation.
const CauseUnknown = "Unknown"

// Finding states why nodes do not join, or why that could not be found out.
type Finding struct {
	// Cause is CamelCase, a condition's reason and a metric's label; for example NodeRoleNotMapped.
	Cause     string
	Certainty Certainty
	// Scope holds what all claims with this cause have in common, for example role/arn:aws:iam::1:role/node. Empty if
	// it concerns one instance only.
	Scope string
	// FromConfiguration is true for a fault that a check of the configuration finds, and no longer finds once it is fixed. A fault that only
	// an instance can show is gone when another instance has joined.
	FromConfiguration bool
	// NodeJoins is true if nodes join in spite of the fault, but do not work correctly. It does not explain a missing node.
	NodeJoins bool
	// InstanceGone is true if the instance is gone although nobody has terminated it on purpose.
	InstanceGone bool
	// Message is one sentence on what is wrong, with the names of the objects.
	Message string
	// Remedy holds what to do about it: commands, or lines to add, each ready to be used.
	Remedy string
	// Deletes is true for a remedy that deletes something.
	Deletes bool
	// Manifest is the remedy as YAML to apply, if it is a manifest.
	Manifest string
}

// RemedySeparator is between the message and the remedy of a Text.
const RemedySeparator = "; to fix it: "

// Text is message and remedy, for a condition or an event.
func (f Finding) Text() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + RemedySeparator + f.Remedy
}

// First returns the finding that best explains why nodes do not join: the first certain one, else the first likely one.
func First(findings []Finding) (Finding, bool) {
	for _, certainty := range []Certainty{Certain, Likely} {
		for _, f := range findings {
			if f.Certainty == certainty && !f.NodeJoins {
				return f, true
			}
		}
	}
	return Finding{}, false
}
