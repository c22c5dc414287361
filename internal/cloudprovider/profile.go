package cloudprovider

// ProfileUse is which instance profiles are in use.
type ProfileUse struct {
	// Names of profiles that a node class or an instance uses.
	Names map[string]bool
	// Classes has the UIDs of all node classes.
	Classes map[string]bool
	// Unsure has the UIDs of node classes with an instance of unknown profile: it may be any of the class's.
	Unsure map[string]bool
}
