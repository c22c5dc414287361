package v1

import "strings"

// RequestedDRADrivers are the DRA drivers that must publish devices of the node before the claim is initialized. People
// may have edited the annotation: blanks and empty entries do not count.
func RequestedDRADrivers(c *NodeClaim) (drivers []string) {
	list := strings.ReplaceAll(c.Annotations[AnnotationRequestedDRADrivers], " ", "")
	for driver := range strings.SplitSeq(list, ",") {
		if driver != "" {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}
