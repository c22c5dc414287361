package ec2

import (
	"fmt"
	"slices"
)

// AllowIngress adds a rule to a security group. The group may be its own source.
func (e *EC2) AllowIngress(groupID string, p Permission) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.network.groups, func(g *SecurityGroup) bool { return g.ID == groupID })
	if at < 0 {
		return fmt.Errorf("allow ingress: no security group %q", groupID)
	}
	for _, source := range p.Groups {
		if e.network.group(source) == nil {
			return fmt.Errorf("allow ingress to %s: no security group %q", groupID, source)
		}
	}
	changed := *e.network.groups[at]
	changed.Ingress = append(slices.Clone(changed.Ingress), p)
	e.network.groups[at] = &changed
	return nil
}
