package network

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/ttlcache"
)

// Subnet is a subnet as EC2 describes it.
type Subnet struct {
	ID     string
	Zone   string
	ZoneID string
	// FreeAddresses is the number of IPv4 addresses that are not in use.
	FreeAddresses int
}

// SecurityGroup is a security group as EC2 describes it.
type SecurityGroup struct {
	ID   string
	Name string
}

// API describes what Finder calls.
type API interface {
	ec2.DescribeSubnetsAPIClient
	ec2.DescribeSecurityGroupsAPIClient
}

// pageSize is the number of results per call; the APIs allow up to 1000, and most accounts need one page.
const pageSize = 500

// Intervals states how long subnets and security groups are cached.
type Intervals struct{ Subnets, SecurityGroups time.Duration }

// Finder looks up subnets and security groups. Answers are cached under a key of the caller, made from
// the node class and its generation, so that an edited class misses the cache.
type Finder struct {
	api       API
	subnets   *ttlcache.Cache[string, []Subnet]
	groups    *ttlcache.Cache[string, []SecurityGroup]
	addresses *Addresses
	zones     zones
}

// NewFinder returns a Finder. It reports every read of subnets to addresses.
func NewFinder(api API, intervals Intervals, addresses *Addresses, now func() time.Time) *Finder {
	return &Finder{
		api:       api,
		subnets:   ttlcache.New[string, []Subnet](intervals.Subnets, now),
		groups:    ttlcache.New[string, []SecurityGroup](intervals.SecurityGroups, now),
		addresses: addresses,
	}
}

// Subnets returns the subnets that any of the terms selects: most free addresses first, then by ID.
func (f *Finder) Subnets(ctx context.Context, key string, terms []awsv1.SubnetSelectorTerm) ([]Subnet, error) {
	if found, ok := f.subnets.Get(key); ok {
		return found, nil
	}
	byID := map[string]Subnet{}
	for _, query := range SubnetQueries(terms) {
		pages := ec2.NewDescribeSubnetsPaginator(f.api, &ec2.DescribeSubnetsInput{Filters: query, MaxResults: aws.Int32(pageSize)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("describe subnets: %w", err)
			}
			for _, s := range page.Subnets {
				byID[aws.ToString(s.SubnetId)] = Subnet{
					ID:            aws.ToString(s.SubnetId),
					Zone:          aws.ToString(s.AvailabilityZone),
					ZoneID:        aws.ToString(s.AvailabilityZoneId),
					FreeAddresses: int(aws.ToInt32(s.AvailableIpAddressCount)),
				}
			}
		}
	}
	subnets := make([]Subnet, 0, len(byID))
	for _, s := range byID {
		subnets = append(subnets, s)
	}
	slices.SortFunc(subnets, func(a, b Subnet) int {
		return cmp.Or(cmp.Compare(b.FreeAddresses, a.FreeAddresses), cmp.Compare(a.ID, b.ID))
	})
	f.addresses.Observe(subnets)
	f.zones.note(subnets)
	f.subnets.Set(key, subnets)
	return subnets, nil
}

// SecurityGroups returns the groups that any of the terms selects, by ID.
func (f *Finder) SecurityGroups(ctx context.Context, key string, terms []awsv1.SecurityGroupSelectorTerm) ([]SecurityGroup, error) {
	if found, ok := f.groups.Get(key); ok {
		return found, nil
	}
	byID := map[string]SecurityGroup{}
	for _, query := range SecurityGroupQueries(terms) {
		pages := ec2.NewDescribeSecurityGroupsPaginator(f.api, &ec2.DescribeSecurityGroupsInput{Filters: query, MaxResults: aws.Int32(pageSize)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, fmt.Errorf("describe security groups: %w", err)
			}
			for _, g := range page.SecurityGroups {
				byID[aws.ToString(g.GroupId)] = SecurityGroup{ID: aws.ToString(g.GroupId), Name: aws.ToString(g.GroupName)}
			}
		}
	}
	groups := make([]SecurityGroup, 0, len(byID))
	for _, g := range byID {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b SecurityGroup) int { return cmp.Compare(a.ID, b.ID) })
	f.groups.Set(key, groups)
	return groups, nil
}
