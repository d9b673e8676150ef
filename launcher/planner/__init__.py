"""What the planner's verbs share: from flags to questions, from answers to values. No launch."""
