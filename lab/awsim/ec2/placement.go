package ec2

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// Strategies of a placement group.
const (
	groupCluster   = "cluster"
	groupPartition = "partition"
	groupSpread    = "spread"
)

// States of a placement group.
const (
	groupAvailable = "available"
	groupDeleting  = "deleting"
)

// maxSpread is how many instances a spread group holds in one zone.
const maxSpread = 7

// PlacementGroup is a placement group: how instances are placed relative to each other.
type PlacementGroup struct {
	ID       string // assigned by AddPlacementGroup
	Name     string
	Strategy string // cluster, partition, spread
	// Partitions is their number for the strategy partition, 1 to 7; 0 = 2.
	Partitions int
	Tags       map[string]string
}

// placementGroup is one with its present state. It is replaced, never modified.
type placementGroup struct {
	PlacementGroup
	// deleted is when its deletion began; zero while it is available.
	deleted time.Time
}

// AddPlacementGroup creates a placement group and returns its ID.
func (e *EC2) AddPlacementGroup(g PlacementGroup) (string, error) {
	if g.Strategy == groupPartition && g.Partitions == 0 {
		g.Partitions = 2
	}
	switch {
	case g.Name == "" || len(g.Name) > 255:
		return "", fmt.Errorf("placement group named %q", g.Name)
	case !slices.Contains([]string{groupCluster, groupPartition, groupSpread}, g.Strategy):
		return "", fmt.Errorf("placement group with the strategy %q", g.Strategy)
	case g.Strategy == groupPartition && (g.Partitions < 1 || g.Partitions > 7), g.Strategy != groupPartition && g.Partitions != 0:
		return "", fmt.Errorf("placement group with the strategy %s and %d partitions", g.Strategy, g.Partitions)
	}
	g.Tags = maps.Clone(g.Tags)
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	added, err := e.addGroup(g, now)
	if err != nil {
		return "", err
	}
	return added.ID, nil
}

// addGroup adds a group with a name that is free. The lock must be held.
func (e *EC2) addGroup(g PlacementGroup, now time.Time) (*placementGroup, error) {
	if e.placementGroup(now, g.Name) != nil {
		return nil, protocol.Errorf("InvalidPlacementGroup.Duplicate", "The Placement Group '%s' already exists.", g.Name)
	}
	g.ID = e.newID("pg")
	added := &placementGroup{PlacementGroup: g}
	e.groups = append(e.groups, added)
	return added, nil
}

// DeletePlacementGroup begins the deletion of a placement group; for as long as an instance takes to shut down it is
// there, and of no use.
func (e *EC2) DeletePlacementGroup(name string) error {
	now := e.applyDueTransitions()
	e.mu.Lock()
	defer e.mu.Unlock()
	g, err := e.groupToDelete(name, now)
	if err != nil {
		return err
	}
	e.deleteGroup(g, now)
	return nil
}

// groupToDelete finds a group that can be deleted. The lock must be held.
func (e *EC2) groupToDelete(name string, now time.Time) (*placementGroup, error) {
	g := e.placementGroup(now, name)
	if g == nil || !g.deleted.IsZero() {
		return nil, groupUnknown(name)
	}
	if slices.ContainsFunc(e.fleet.members(g), func(r *instanceRecord) bool { return r.State != Terminated }) {
		return nil, protocol.Errorf("InvalidPlacementGroup.InUse", "The placement group '%s' is in use and may not be deleted.", name)
	}
	return g, nil
}

// deleteGroup begins the deletion of a group. The lock must be held.
func (e *EC2) deleteGroup(g *placementGroup, now time.Time) {
	deleted := *g
	deleted.deleted = now
	e.groups[slices.Index(e.groups, g)] = &deleted
}

func groupUnknown(name string) error {
	return protocol.Errorf("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
}

// placementGroup finds a group by name or ID, nil if there is none (any more). The lock must be held.
func (e *EC2) placementGroup(now time.Time, nameOrID string) *placementGroup {
	n := slices.IndexFunc(e.groups, func(g *placementGroup) bool { return (g.Name == nameOrID || g.ID == nameOrID) && e.exists(g, now) })
	if n < 0 {
		return nil
	}
	return e.groups[n]
}

func (e *EC2) exists(g *placementGroup, now time.Time) bool {
	return g.deleted.IsZero() || now.Before(g.deleted.Add(e.cfg.Timing.Shutdown))
}

// members are the instances of a group that are not terminated. The lock must be held.
func (in *instances) members(g *placementGroup) []*instanceRecord {
	return slices.DeleteFunc(in.list(), func(r *instanceRecord) bool {
		return r.State == Terminated || r.order.placed == nil || r.order.placed.ID != g.ID
	})
}

// resolveGroup looks up the placement group that a launch is to go into, if it names one.
func (e *EC2) resolveGroup(o *launchPlan, p *placementSpec) error {
	named := p.GroupID
	switch {
	case p.GroupID != "" && p.GroupName != "":
		return combination("The parameter groupId cannot be used with the parameter groupName")
	case p.GroupID != "":
		if err := checkGroupID(p.GroupID); err != nil {
			return err
		}
	case p.GroupName != "":
		named = p.GroupName
	case p.Partition != nil:
		return combination("The parameter partitionNumber needs a placement group")
	default:
		return nil
	}
	g := e.placementGroup(e.cfg.Clock.Now(), named)
	switch {
	case g == nil || !g.deleted.IsZero():
		return groupUnknown(named)
	case !slices.Contains(infoOf(o.instanceType).PlacementGroups.Strategies, g.Strategy):
		return combination(
			"The instance type '%s' cannot be launched into a placement group with the strategy '%s'",
			o.instanceType.Name,
			g.Strategy,
		)
	case p.Partition != nil && g.Strategy != groupPartition:
		return combination("The parameter partitionNumber is for placement groups with the strategy partition")
	case p.Partition != nil && (*p.Partition < 1 || *p.Partition > g.Partitions):
		return invalidValue(
			"Value (%d) for parameter partitionNumber is invalid. Expecting a value between 1 and %d.",
			*p.Partition,
			g.Partitions,
		)
	}
	o.placed = g
	return nil
}

func placementGroupIDs() idRules {
	return idRules{
		prefix: "pg", malformed: "InvalidPlacementGroupId.Malformed", notFound: "InvalidPlacementGroup.Unknown",
		missing: func(ids []string) string {
			return "The Placement Group '" + strings.Join(ids, "', '") + "' is unknown."
		},
	}
}

func checkGroupID(id string) error {
	if rest, ok := strings.CutPrefix(id, "pg-"); !ok || !hexadecimal.MatchString(rest) {
		return protocol.Errorf("InvalidPlacementGroupId.Malformed", "The placement group ID '%s' is malformed.", id)
	}
	return nil
}

// spreadFull returns an error if a spread group has no room for n more instances in the zone of a launch plan. The lock
// must be held.
func (fl *instances) spreadFull(o *launchPlan, n int) error {
	if o.placed == nil || o.placed.Strategy != groupSpread {
		return nil
	}
	there := 0
	for _, r := range fl.members(o.placed) {
		if r.Zone == o.subnet.Zone && r.State != ShuttingDown {
			there++
		}
	}
	if there+n <= maxSpread {
		return nil
	}
	return protocol.Errorf("InsufficientInstanceCapacity",
		"You have reached the limit of instances in this spread placement group for the Availability Zone %s.", o.subnet.Zone).WithStatus(500)
}

// partition is that of a new instance: the one that was requested, else the emptiest. 0 without partitions. The lock
// must be held.
func (in *instances) partition(o *launchPlan) int {
	if o.placed == nil || o.placed.Strategy != groupPartition {
		return 0
	}
	if asked := o.data.Placement.Partition; asked != nil {
		return *asked
	}
	used := make([]int, o.placed.Partitions+1)
	for _, r := range in.members(o.placed) {
		used[r.partition]++
	}
	least := 1
	for n := range used {
		if n > 0 && used[n] < used[least] {
			least = n
		}
	}
	return least
}

type describePlacementGroupsInput struct {
	DryRun  bool     `query:"DryRun"`
	Filters []Filter `query:"Filter"`
	IDs     []string `query:"GroupId"`
	Names   []string `query:"GroupName"`
}

type describePlacementGroupsOutput struct {
	Groups []placementGroupInfo `xml:"placementGroupSet>item"`
}

// placementGroupInfo is a group as DescribePlacementGroups shows it.
type placementGroupInfo struct {
	ID          string `xml:"groupId"`
	Name        string `xml:"groupName"`
	ARN         string `xml:"groupArn"`
	State       string `xml:"state"`
	Strategy    string `xml:"strategy"`
	Partitions  *int   `xml:"partitionCount"`
	SpreadLevel string `xml:"spreadLevel,omitempty"`
	Tags        []tag  `xml:"tagSet>item"`
	tags        map[string]string
}

func (c *Config) showGroup(g *placementGroup) placementGroupInfo {
	i := placementGroupInfo{
		ID: g.ID, Name: g.Name, State: pick(g.deleted.IsZero(), groupAvailable, groupDeleting), Strategy: g.Strategy,
		ARN:         fmt.Sprintf("arn:aws:ec2:%s:%s:placement-group/%s", c.Region, c.AccountID, g.Name),
		SpreadLevel: pick(g.Strategy == groupSpread, "rack", ""), Tags: tagList(g.Tags), tags: g.Tags,
	}
	if g.Partitions > 0 {
		i.Partitions = &g.Partitions
	}
	return i
}

func (e *EC2) describePlacementGroups(_ *protocol.Request, in *describePlacementGroupsInput) (*describePlacementGroupsOutput, error) {
	match, err := compileFilters(in.Filters, properties[placementGroupInfo]{
		"group-arn":    one(func(g placementGroupInfo) string { return g.ARN }),
		"group-name":   one(func(g placementGroupInfo) string { return g.Name }),
		"spread-level": one(func(g placementGroupInfo) string { return g.SpreadLevel }),
		"state":        one(func(g placementGroupInfo) string { return g.State }),
		"strategy":     one(func(g placementGroupInfo) string { return g.Strategy }),
	}, func(g placementGroupInfo) map[string]string { return g.tags })
	if err != nil {
		return nil, err
	}
	for _, id := range in.IDs {
		if err := checkGroupID(id); err != nil {
			return nil, err
		}
	}
	now := e.applyDueTransitions()
	e.mu.RLock()
	defer e.mu.RUnlock()
	wanted := slices.Concat(in.IDs, in.Names)
	for _, name := range wanted {
		if e.placementGroup(now, name) == nil {
			return nil, groupUnknown(name)
		}
	}
	if in.DryRun {
		return nil, dryRun()
	}
	out := &describePlacementGroupsOutput{}
	for _, g := range e.groups {
		shown := e.cfg.showGroup(g)
		picked := len(wanted) == 0 || slices.Contains(in.IDs, g.ID) || slices.Contains(in.Names, g.Name)
		if picked && e.exists(g, now) && match(shown) {
			out.Groups = append(out.Groups, shown)
		}
	}
	return out, nil
}
