package cloudprovider

// ProfileUse is what instance profiles are in use for.
type ProfileUse struct {
	// Names of profiles that a node class or an instance uses.
	Names map[string]bool
	// Classes has the UIDs of all node classes.
	Classes map[string]bool
	// Unsure has the UIDs of node classes with an instance that does not say which profile it uses: any of the class's may be it.
	Unsure map[string]bool
}
