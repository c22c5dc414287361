// Package network finds the subnets and security groups of a node class, and chooses the subnet of each zone for a launch by free
// addresses.
package network

import (
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// Query is one DescribeX call: its filters must all hold.
type Query []ec2types.Filter

// SubnetQueries turns selector terms into queries; the subnets are the union of their results. All IDs share one query; every
// other term has its own.
func SubnetQueries(terms []awsv1.SubnetSelectorTerm) []Query {
	var queries []Query
	var ids []string
	for _, term := range terms {
		switch {
		case term.ID != "":
			ids = append(ids, term.ID)
		case len(term.Tags) > 0:
			queries = append(queries, TagFilters(term.Tags))
		}
	}
	return append(oneOf("subnet-id", ids), queries...)
}

// SecurityGroupQueries is SubnetQueries for security groups, which can be selected by name as well.
func SecurityGroupQueries(terms []awsv1.SecurityGroupSelectorTerm) []Query {
	var queries []Query
	var ids, names []string
	for _, term := range terms {
		switch {
		case term.ID != "":
			ids = append(ids, term.ID)
		case term.Name != "":
			names = append(names, term.Name)
		case len(term.Tags) > 0:
			queries = append(queries, TagFilters(term.Tags))
		}
	}
	return slices.Concat(oneOf("group-id", ids), oneOf("group-name", names), queries)
}

// TagFilters are filters for tags that must all exist; the value "*" allows any value.
func TagFilters(tags map[string]string) Query {
	filters := make(Query, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		if tags[key] == "*" {
			filters = append(filters, Filter("tag-key", key))
		} else {
			filters = append(filters, Filter("tag:"+key, tags[key]))
		}
	}
	return filters
}

// Filter is an EC2 filter: the named attribute must be one of values.
func Filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

func oneOf(attribute string, values []string) []Query {
	if len(values) == 0 {
		return nil
	}
	return []Query{{Filter(attribute, values...)}}
}
