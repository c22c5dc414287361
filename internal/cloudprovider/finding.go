package cloudprovider

// Certainty is how much is known about a Finding.
type Certainty string

// How certain a finding is. Only what is certain keeps instances from being launched.
const (
	// Certain findings follow from what was read: nodes cannot join while they stand.
	Certain Certainty = "certain"
	// Likely findings explain what is seen, and something else might too.
	Likely Certainty = "likely"
	// Unchecked findings say what could not be looked at, and why.
	Unchecked Certainty = "could not be checked"
)

// CauseUnknown is the cause of a failure that nothing explains.
const CauseUnknown = "Unknown"

// Finding is why nodes do not join, or why that could not be told.
type Finding struct {
	// Cause is CamelCase, fit for a condition's reason and a metric's label; for example NodeRoleNotMapped.
	Cause     string
	Certainty Certainty
	// Scope is what all claims with this cause have in common, for example role/arn:aws:iam::1:role/node. Empty if
	// it concerns one instance only.
	Scope string
	// Standing is true for a fault that a look at the configuration finds, and finds gone once it is mended. A
	// fault that only an instance can show is gone when another instance has joined.
	Standing bool
	// Joins is true if nodes join all the same, and then do not work as they should. It explains no node that is missing.
	Joins bool
	// Ended is true if the instance is gone, and nobody has asked for that.
	Ended bool
	// Message says in one sentence what is wrong, with the objects' names.
	Message string
	// Remedy is what to do about it: commands, or lines to add, each ready to be used.
	Remedy string
	// Manifest is the remedy as YAML to apply, where it is one.
	Manifest string
}

// Text is message and remedy, as a condition or an event says them.
func (f Finding) Text() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + "; to mend it: " + f.Remedy
}

// First returns the finding that best explains why nodes do not join: the first certain one, else the first likely one.
func First(findings []Finding) (Finding, bool) {
	for _, certainty := range []Certainty{Certain, Likely} {
		for _, f := range findings {
			if f.Certainty == certainty && !f.Joins {
				return f, true
			}
		}
	}
	return Finding{}, false
}
