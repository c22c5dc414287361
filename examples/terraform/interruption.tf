# Warnings of AWS about instances reach the controller by this queue.

resource "aws_sqs_queue" "interruption" {
  name                      = var.cluster_name
  message_retention_seconds = 300
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "interruption" {
  queue_url = aws_sqs_queue.interruption.url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EventsMaySend"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.interruption.arn
      },
      {
        Sid       = "OnlyByTLS"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.interruption.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

locals {
  # The events that the controller acts on.
  events = {
    spot-interruption = { source = "aws.ec2", detail_type = "EC2 Spot Instance Interruption Warning" }
    rebalance         = { source = "aws.ec2", detail_type = "EC2 Instance Rebalance Recommendation" }
    reservation       = { source = "aws.ec2", detail_type = "EC2 Capacity Reservation Instance Interruption Warning" }
    state-change      = { source = "aws.ec2", detail_type = "EC2 Instance State-change Notification" }
    health            = { source = "aws.health", detail_type = "AWS Health Event" }
  }
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each      = local.events
  name          = "${var.cluster_name}-${each.key}"
  event_pattern = jsonencode({ source = [each.value.source], "detail-type" = [each.value.detail_type] })
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each = local.events
  rule     = aws_cloudwatch_event_rule.interruption[each.key].name
  arn      = aws_sqs_queue.interruption.arn
}
